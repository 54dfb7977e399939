"""How much of the time, as people write it."""

from __future__ import annotations

import argparse

import pytest

from crowdgrad.cli.work import percent


@pytest.mark.parametrize(
    ("text", "found"),
    [("50%", 50), ("50", 50), ("0.5", 50), ("1", 100), ("100%", 100), ("5 %", 5), ("0.05", 5)],
)
def test_shares(text: str, found: int) -> None:
    assert percent(text) == found


@pytest.mark.parametrize("text", ["", "half", "0", "0%", "4%", "1%", "101", "-50%", "nan", "inf"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a share of 5% to 100%"):
        percent(text)
