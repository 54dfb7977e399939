"""From columns to fields: which numbers are stored how, once all parts have been read.

stack     single numbers and onehot categories side by side: one matrix for a table
dense     an array as it is
code      a category's number
padded    a sequence or a text, cut or padded to one length;  length: how long it was
window    a stretch of a long text;  next: the same one token later
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec
import numpy as np

from crowdgrad.data.preparing.columns import Array, Coded, Column, Dense, Ragged, whole_type
from crowdgrad.data.preparing.options import Options
from crowdgrad.data.preparing.parts import Format, Known
from crowdgrad.data.preparing.schema import MAX_ONEHOT, ColumnPlan, Schema
from crowdgrad.data.preparing.tallies import ColumnTally, Tally
from crowdgrad.data.preparing.tokens import read_vocabulary
from crowdgrad.domain.data import MAX_CARD_NAME, MAX_CARD_NAMES, Field
from crowdgrad.domain.program import ITEM_BYTES, DType
from crowdgrad.errors import DataMalformed

Make = Literal["stack", "dense", "code", "padded", "length", "window", "next"]
PADDING = "<pad>"
USUAL_LENGTH = 512
"""Of texts and sequences, at most, unless told."""
USUAL_WINDOW = 64
LARGER = 1 << 20
"""What whole numbers of a source that grows may come to, if not more already."""
IGNORED = -100
"""What pads a sequence of classes: PyTorch's losses pass over it."""


class Source(msgspec.Struct, frozen=True):
    """A column's share in a field."""

    column: str
    names: tuple[str, ...] = ()
    """Of a category: in the order of their codes."""
    onehot: bool = False


class FieldPlan(msgspec.Struct, frozen=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    make: Make
    sources: tuple[Source, ...]
    pad: int = 0
    shift: int = 0
    """Added to the numbers of tokens: 0 is padding then."""
    most: int = 0
    """What a length is at most: the rest was cut off."""
    points: tuple[int, ...] = ()
    """Code points in order: a character's number is its place."""
    normal: Literal["", "whole", "each"] = ""
    """Whether its mean and deviation are taken: of all, or of each place of the first dimension."""

    @property
    def bytes(self) -> int:
        return Field(name=self.name, dtype=cast(DType, self.dtype), shape=self.shape).bytes


class Fitted(msgspec.Struct, frozen=True):
    fields: tuple[FieldPlan, ...]
    target: str = ""
    """The column whose classes are known, if one is."""
    classes: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    vocabulary: tuple[str, ...] = ()
    length: int = 0
    """Of windows; 0 where records are not windows."""

    @property
    def record_bytes(self) -> int:
        return sum(field.bytes for field in self.fields)


def fit(format: Format, schema: Schema, known: Known, whole: Tally, options: Options) -> Fitted:
    """Raises DataMalformed."""
    if format == "text":
        return _windows(schema, known, whole, options)
    inputs = _fields(schema.of("input"), known, whole, options, format=format, target=False)
    targets = _fields(schema.of("target"), known, whole, options, format=format, target=True)
    inputs, targets = _named(inputs, "x"), _named(targets, "y")
    names = [field.name for field in (*inputs, *targets)]
    if len(set(names)) != len(names):
        raise DataMalformed(
            f"the fields would be {', '.join(names)}.", advice="Rename a column: two are alike."
        )
    _check(names, (*inputs, *targets))
    target, classes = _classes(schema, whole, format)
    counts = tuple(whole.columns[target].names.get(name, 0) for name in classes) if target else ()
    vocabulary: tuple[str, ...] = ()
    for field in (*inputs, *targets):
        if field.make == "padded" and field.shift:
            vocabulary = (PADDING, *_spelled(field.points, known))
    return Fitted((*inputs, *targets), target, classes, counts, listed(vocabulary))


def _check(names: Sequence[str], fields: Sequence[FieldPlan]) -> None:
    """Raises DataMalformed for fields that no manifest can have."""
    for name, field in zip(names, fields, strict=True):
        try:
            size = field.bytes
        except ValueError as error:
            raise DataMalformed(
                f"{name[:40]!r} cannot be a field: {error}.", advice="Rename the column."
            ) from None
        if not size:
            raise DataMalformed(
                f"the records of {name} are empty: their shape is {field.shape}.",
                advice=f"Leave it out: --column {name}=drop.",
            )


def listed(names: tuple[str, ...]) -> tuple[str, ...]:
    """Where a card has room for them."""
    fits = len(names) <= MAX_CARD_NAMES and all(len(name) <= MAX_CARD_NAME for name in names)
    return names if fits else ()


def spelled(field: FieldPlan) -> str:
    """What stands side by side in it."""
    return ", ".join(
        f"{source.column}={name}" if source.onehot else source.column
        for source in field.sources
        for name in (source.names if source.onehot else ("",))
    )


def _spelled(points: tuple[int, ...], known: Known) -> tuple[str, ...]:
    if known.tokens.by == "char":
        return tuple(map(chr, points))
    if known.tokens.by == "vocabulary":
        return read_vocabulary(known.tokens.file).entries
    return ()


def _windows(schema: Schema, known: Known, whole: Tally, options: Options) -> Fitted:
    (plan,) = schema.used
    column = whole.columns.get(plan.name, ColumnTally())
    length = options.text.length or USUAL_WINDOW
    points = tuple(column.points)
    dtype = _token_type(known, points, 0)
    source = (Source(plan.name),)
    fields = (
        FieldPlan("x", dtype, (length,), "window", source, points=points),
        FieldPlan("y", dtype, (length,), "next", source, points=points),
    )
    return Fitted(fields, vocabulary=listed(_spelled(points, known)), length=length)


def _token_type(known: Known, points: tuple[int, ...], shift: int) -> str:
    if known.tokens.by == "byte":
        most = 255
    elif known.tokens.by == "char":
        most = max(0, len(points) - 1)
    else:
        most = len(read_vocabulary(known.tokens.file).entries) - 1
    return whole_type(0, most + shift).name


def _fields(
    plans: Sequence[ColumnPlan], known: Known, whole: Tally, options: Options, *,
    format: Format, target: bool,
) -> list[FieldPlan]:  # fmt: skip
    fields: list[FieldPlan] = []
    stacked: list[tuple[Source, ColumnTally]] = []
    for plan in plans:
        found = whole.columns.get(plan.name, ColumnTally())
        if plan.kind == "category":
            names = ordered(plan, found)
            if not target and plan.encode == "onehot" and len(names) <= MAX_ONEHOT:
                stacked.append((Source(plan.name, names, True), found))
            else:
                dtype = whole_type(0, max(0, len(names) - 1)).name
                source = (Source(plan.name, names),)
                fields.append(FieldPlan(plan.name, dtype, (), "code", source))
        elif plan.kind in ("text", "sequence"):
            fields += _padded(plan, found, known, options, target=target)
        elif plan.kind == "number" and not found.shape and format != "arrays":
            stacked.append((Source(plan.name), found))
        else:
            fields.append(_dense(plan, found, options, format=format, target=target))
    if stacked:
        fields.insert(0, _stack(stacked, options, target=target))
    return fields


def ordered(plan: ColumnPlan, found: ColumnTally) -> tuple[str, ...]:
    """Raises DataMalformed for a word that somebody's order does not have."""
    if not plan.order:
        return in_order(found.names)
    unknown = sorted(set(found.names) - set(plan.order))
    if unknown:
        raise DataMalformed(
            f"{plan.name} holds {', '.join(map(repr, unknown[:5]))}, which its order has not.",
            advice="Add it to the order, or leave the order to us.",
        )
    return plan.order


def in_order(names: Mapping[str, int]) -> tuple[str, ...]:
    """Numbers by their size, words by the alphabet."""
    try:
        return tuple(sorted(names, key=int))
    except ValueError:
        return tuple(sorted(names))


def _stack(
    stacked: Sequence[tuple[Source, ColumnTally]], options: Options, *, target: bool
) -> FieldPlan:
    width = sum(len(source.names) if source.onehot else 1 for source, _ in stacked)
    numbers = [found for source, found in stacked if not source.onehot]
    dtype = "float32"
    # What is predicted is a number like others, whether its cells are whole or not.
    if not target and all(found.whole for found in numbers):
        held = [found for found in numbers if found.least <= found.most]
        least = min((found.least for found in held), default=0.0)
        most = max((found.most for found in held), default=1.0)
        room = LARGER if options.growing else 1
        dtype = whole_type(min(0, int(least)), max(room, int(most))).name
    one = target and width == 1
    return FieldPlan(
        "y" if target else "x",
        dtype,
        () if one else (width,),
        "stack",
        tuple(source for source, _ in stacked),
        normal="each" if options.normalise and not target else "",
    )


def _dense(
    plan: ColumnPlan, found: ColumnTally, options: Options, *, format: Format, target: bool
) -> FieldPlan:
    dtype = found.dtype if found.dtype in ITEM_BYTES else "float32"
    if format not in ("arrays",) and dtype == "float64":
        dtype = "float32"
    pixels = dtype == "uint8" and len(found.shape) >= 2
    normal: Literal["", "whole", "each"] = ""
    if options.normalise and not target and (pixels or dtype.startswith("float")):
        few = len(found.shape) == 3 and found.shape[0] <= 4
        normal = "each" if few or len(found.shape) == 1 else "whole"
    return FieldPlan(plan.name, dtype, found.shape, "dense", (Source(plan.name),), normal=normal)


def _padded(
    plan: ColumnPlan, found: ColumnTally, known: Known, options: Options, *, target: bool
) -> list[FieldPlan]:
    length = options.text.length or max(1, min(USUAL_LENGTH, found.longest))
    source = (Source(plan.name),)
    normal: Literal["", "whole", "each"] = ""
    if plan.kind == "text":
        pad, shift, points = 0, 1, tuple(found.points)
        dtype = _token_type(known, points, shift)
    else:
        whole = found.whole and found.least != np.inf
        pad, shift, points = (IGNORED if target and whole else 0), 0, ()
        dtype = "float32"
        if whole:
            dtype = whole_type(min(pad, int(found.least)), max(pad, int(found.most))).name
    fields = [
        FieldPlan(
            plan.name, dtype, (length, *found.shape), "padded", source,
            pad=pad, shift=shift, points=points, normal=normal,
        )
    ]  # fmt: skip
    if not target:
        kind = whole_type(0, length).name
        fields.append(FieldPlan(f"{plan.name}_length", kind, (), "length", source, most=length))
    return fields


def _named(fields: list[FieldPlan], name: str) -> list[FieldPlan]:
    """The only field, or the only sequence and its length, gets the usual name."""
    main = [field for field in fields if field.make != "length"]
    if len(main) != 1:
        return fields
    return [
        msgspec.structs.replace(f, name=name if f.make != "length" else f"{name}_length")
        for f in fields
    ]


def _classes(schema: Schema, whole: Tally, format: Format) -> tuple[str, tuple[str, ...]]:
    """The one target with classes, and their names in order: class k is the k-th.

    Whole numbers in an array are stored as they are, so 1, 2, 3 are the classes 0 to 3, and there
    is none of 0.
    """
    targets = schema.of("target")
    if len(targets) != 1:
        return "", ()
    found = whole.columns.get(targets[0].name, ColumnTally())
    if not found.names:
        return "", ()
    if targets[0].kind == "category":
        return targets[0].name, ordered(targets[0], found)
    if format != "arrays" or found.least < 0 or found.most >= MAX_CARD_NAMES:
        return "", ()
    return targets[0].name, tuple(map(str, range(int(found.most) + 1)))


# -- records ----------------------------------------------------------------------------------


def encode(columns: Mapping[str, Column], fitted: Fitted) -> list[Array]:
    """A block's records, an array for each field."""
    return [_encode(columns, field) for field in fitted.fields]


def _encode(columns: Mapping[str, Column], field: FieldPlan) -> Array:
    if field.make == "stack":
        return _side_by_side(columns, field)
    (source,) = field.sources
    column = columns[source.column]
    if field.make == "code":
        assert isinstance(column, Coded)
        return codes(column, source.names).astype(field.dtype)
    if field.make == "dense":
        assert isinstance(column, Dense)
        return column.values.astype(field.dtype, copy=False)
    assert isinstance(column, Ragged)
    if field.make == "length":
        return np.minimum(column.lengths, field.most).astype(field.dtype)
    return _pad(column, field)


def codes(column: Coded, names: Sequence[str]) -> Array:
    """By the names' order in all parts; −1 for a name that is none of them."""
    places = {name: place for place, name in enumerate(names)}
    table = np.array([places.get(name, -1) for name in column.names] or [0], np.int64)
    return table[column.codes]


def _side_by_side(columns: Mapping[str, Column], field: FieldPlan) -> Array:
    records = len(columns[field.sources[0].column])
    width = field.shape[0] if field.shape else 1
    out = np.zeros((records, width), field.dtype)
    at = 0
    for source in field.sources:
        column = columns[source.column]
        if source.onehot:
            assert isinstance(column, Coded)
            out[np.arange(records), at + codes(column, source.names)] = 1
            at += len(source.names)
        else:
            assert isinstance(column, Dense)
            out[:, at] = column.values
            at += 1
    return out if field.shape else out[:, 0]


def _pad(column: Ragged, field: FieldPlan) -> Array:
    out = np.full((len(column), *field.shape), field.pad, field.dtype)
    values = tokens(column.values, field)
    lengths = column.lengths
    kept = np.minimum(lengths, field.shape[0])
    rows = np.repeat(np.arange(len(column)), kept)
    steps = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
    out[rows, steps] = values[np.repeat(column.ends - lengths, kept) + steps]
    return out


def tokens(values: Array, field: FieldPlan) -> Array:
    """Code points as places; everything else as it is, shifted to make room for padding."""
    if field.points:
        table = np.zeros(field.points[-1] + 1, np.int32)
        table[list(field.points)] = np.arange(len(field.points))
        values = table[values]
    if field.shift:
        values = values.astype(np.int32) + field.shift
    return values.astype(field.dtype, copy=False)
