"""A data set's card in words: for whoever is asked to help, for a report, for a file."""

from __future__ import annotations

from crowdgrad.domain.data import Card

UNKNOWN = "unknown"
CLASSES_NAMED = 12
MAX_SHOWN = 200
"""Characters of one of its texts that are shown beside others."""


def in_words(card: Card) -> list[tuple[str, str]]:
    """What it says, each with what that is; what it does not say is left out, but the licence."""
    said = [("licence", _clipped(card.licence) or UNKNOWN)]
    if card.source:
        said.insert(0, ("source", _clipped(card.source)))
    if card.classes:
        said.append(("classes", f"{len(card.classes):,}: {_classes(card)}"))
    if card.left_out:
        said.append(("left out", f"{card.left_out:,} records that could not be used"))
    return said


def _classes(card: Card) -> str:
    counts = card.counts or (None,) * len(card.classes)
    named = [
        name if count is None else f"{name} {count:,}"
        for name, count in zip(card.classes, counts, strict=True)
    ]
    more = len(named) - CLASSES_NAMED
    return ", ".join(named[:CLASSES_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _clipped(text: str) -> str:
    return f"{text[:MAX_SHOWN]}…" if len(text) > MAX_SHOWN else text


def as_json(card: Card) -> dict[str, object]:
    """All of it but the vocabulary, which may be long."""
    return {
        "source": card.source,
        "licence": card.licence or f"licence {UNKNOWN}",
        "classes": list(card.classes),
        "counts": list(card.counts),
        "vocabulary": len(card.vocabulary),
        "left_out": card.left_out,
        "notes": list(card.notes),
    }
