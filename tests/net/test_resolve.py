"""Names become addresses before anybody is dialled; ways to write an address become one, too."""

from __future__ import annotations

import asyncio

import pytest

from crowdgrad.errors import Unreachable
from crowdgrad.net.resolve import addresses


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("192.168.1.1", "192.168.1.1"),
        ("::1", "::1"),
        ("2130706433", "127.0.0.1"),  # the same as one number
        ("0", "0.0.0.0"),
    ],
)
def test_however_an_address_is_written_it_is_one(name: str, found: str) -> None:
    assert asyncio.run(addresses(name)) == (found,)


@pytest.mark.parametrize("name", ["no.such.name.invalid", "x" * 300])
def test_a_name_that_nobody_knows_cannot_be_reached(name: str) -> None:
    with pytest.raises(Unreachable):
        asyncio.run(addresses(name))
