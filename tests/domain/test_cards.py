"""A card in words: short, and the licence always said."""

from __future__ import annotations

from crowdgrad.domain.cards import CLASSES_NAMED, MAX_SHOWN, as_json, in_words
from crowdgrad.domain.data import MAX_CARD_WORDS, NO_CARD, Card


def test_a_licence_nobody_knows_is_said_to_be_unknown() -> None:
    assert in_words(NO_CARD) == [("licence", "unknown")]
    assert as_json(NO_CARD)["licence"] == "licence unknown"


def test_everything_that_is_known_is_said() -> None:
    card = Card(
        source="photos", licence="CC0", classes=("cat", "dog"), counts=(1200, 7), left_out=3
    )
    assert in_words(card) == [
        ("source", "photos"),
        ("licence", "CC0"),
        ("classes", "2: cat 1,200, dog 7"),
        ("left out", "3 records that could not be used"),
    ]


def test_a_long_card_stays_short() -> None:
    many = tuple(f"class {number}" for number in range(1000))
    card = Card(source="s" * MAX_CARD_WORDS, classes=many, vocabulary=many)
    said = dict(in_words(card))
    assert len(said["source"]) == MAX_SHOWN + 1
    assert said["classes"].endswith(f" and {1000 - CLASSES_NAMED} more")
    assert as_json(card)["vocabulary"] == 1000
