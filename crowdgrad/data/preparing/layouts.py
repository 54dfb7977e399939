"""Which records there are and where they will lie, once all parts have been counted. All pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

import msgspec

from crowdgrad.data.preparing.fitting import Fitted
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Part
from crowdgrad.data.preparing.placing import buckets, divide
from crowdgrad.data.preparing.stages import Layout
from crowdgrad.data.preparing.tallies import Tally
from crowdgrad.domain.data import Split
from crowdgrad.errors import BadRecords, DataMalformed


def judge(whole: Tally, options: Options) -> int:
    """How many records are left out. Raises BadRecords where more are bad than may be."""
    count = sum(whole.bad_counts.values())
    limit = {"skip": count, "stop": 0}.get(str(options.bad), options.bad)
    if count > int(limit):
        raise _too_many(whole, count)
    if not whole.records:
        raise DataMalformed("there is no record left.", advice="Look at what was left out above.")
    return count


def _too_many(whole: Tally, count: int) -> BadRecords:
    kinds = ", ".join(
        f"{times:,} {kind}" for kind, times in sorted(whole.bad_counts.items(), key=lambda k: -k[1])
    )
    first = whole.bad[0]
    return BadRecords(
        f"{count:,} of {whole.records + count:,} records are bad: {kinds}. The first: "
        f"{first.where}: {first.kind}: {first.detail}.",
        advice="Mend them, or leave them out with --bad skip (or --bad N for at most N).",
        counts=whole.bad_counts,
        shown=[(bad.file, bad.line, bad.kind, bad.detail) for bad in whole.bad],
    )


def lay_out(
    parts: Sequence[Part], tallies: Sequence[Tally], fitted: Fitted, options: Options
) -> Layout:
    """All that is known before the records are divided. Raises DataMalformed."""
    records = [tally.records for tally in tallies]
    tokens: tuple[int, ...] = ()
    if fitted.length:
        tokens = tuple(accumulate(records, initial=0))
        records = _windows(parts, tokens, fitted.length)
        if not sum(records):
            raise DataMalformed(
                f"{tokens[-1]} tokens do not fill a window of {fitted.length} and one more.",
                advice="Give more text, or a shorter --length.",
            )
    given: dict[Split, int] = {}
    for part, count in zip(parts, records, strict=True):
        if part.split is not None:
            given[part.split] = given.get(part.split, 0) + count
    divided = [
        part.split is None or (part.split == "train" and _takes_from_train(given, options))
        for part in parts
    ]
    numbers = [count if yes else 0 for count, yes in zip(records, divided, strict=True)]
    kept = {split: n for split, n in given.items() if split != "train" or not any(divided)}
    classes = _classes(fitted, tallies, divided) if options.stratify else None
    alike = [sum(counts) for counts in zip(*classes, strict=True)] if classes else None
    return Layout(
        fitted=fitted,
        division=divide(options, kept, sum(numbers), alike, in_order=bool(fitted.length)),
        seed=options.seed,
        records=tuple(records),
        first=tuple(accumulate(numbers, initial=0))[:-1],
        divided=tuple(divided),
        class_first=_before(classes) if classes else (),
        token_first=tokens,
        chunk_bytes=options.chunk_bytes,
    )


def laid_out(layout: Layout, counts: Sequence[Sequence[int]], options: Options) -> Layout:
    """The whole of it. `counts`: of each part, how many records go to each split."""
    totals = tuple(map(sum, zip(*counts, strict=True)))
    cut = buckets(totals, layout.fitted.record_bytes, options.shard_records)
    return msgspec.structs.replace(
        layout, before=_before(counts), totals=totals, buckets=tuple(cut)
    )


def _takes_from_train(given: dict[Split, int], options: Options) -> bool:
    """Whether a source that has its own training records lacks a split we are to make."""
    validation = not given.get("validation") and options.validation != 0
    test = not given.get("test") and bool(options.test)
    return validation or test


def _classes(fitted: Fitted, tallies: Sequence[Tally], divided: Sequence[bool]) -> list[list[int]]:
    """How many records of each class every part has, where classes are to be kept alike."""
    if not fitted.target or fitted.length:
        raise DataMalformed(
            "there are no classes to divide alike.",
            advice="Leave out --stratify, or name a target of classes with --target.",
        )
    return [
        [tally.columns[fitted.target].names.get(name, 0) if yes and tally.records else 0
         for name in fitted.classes]
        for tally, yes in zip(tallies, divided, strict=True)
    ]  # fmt: skip


def _windows(parts: Sequence[Part], tokens: Sequence[int], length: int) -> list[int]:
    """How many windows begin in each part. `tokens`: before each part, and all there are.

    Parts of one split follow each other, and no window leads from one split into another: the last
    token of each is only ever a `next`.
    """
    found = []
    for _, group in groupby(range(len(parts)), key=lambda number: parts[number].split):
        numbers = list(group)
        firsts = [tokens[number] - tokens[numbers[0]] for number in (*numbers, numbers[-1] + 1)]
        total = max(0, firsts[-1] - 1) // length
        begun = [min(total, -(-first // length)) for first in firsts[:-1]] + [total]
        found += [after - before for before, after in pairwise(begun)]
    return found


def _before(counts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """For each part, the sums over all parts before it."""
    sums = [0] * len(counts[0])
    found = []
    for row in counts:
        found.append(tuple(sums))
        sums = [a + b for a, b in zip(sums, row, strict=True)]
    return tuple(found)
