"""A network that is paid by the byte: who says so, and what a volunteer does then."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.replication.sharing import Manner
from crowdgrad.settings import METERED
from crowdgrad.volunteer import metered
from crowdgrad.volunteer.metered import READINGS, Manners, Reading, of_bus, of_devices
from tests.virtual_time import run_virtual

# As `busctl get-property … Metered` and `nmcli -t -f … device show` write it.
BUS: dict[str, Reading] = {
    "u 0\n": "unknown", "u 1\n": "yes", "u 2\n": "no", "u 3\n": "guess yes", "u 4\n": "guess no",
}  # fmt: skip
AT_HOME = """\
GENERAL.DEVICE:wlp3s0
GENERAL.STATE:100 (connected)
GENERAL.METERED:no (guessed)

GENERAL.DEVICE:docker0
GENERAL.STATE:100 (connected (externally))
GENERAL.METERED:no (guessed)

GENERAL.DEVICE:lo
GENERAL.STATE:10 (unmanaged)
GENERAL.METERED:unknown
"""
TETHERED = """\
GENERAL.DEVICE:lo
GENERAL.STATE:100 (connected (externally))
GENERAL.METERED:unknown

GENERAL.DEVICE:enp0s20f0u2
GENERAL.STATE:100 (connected)
GENERAL.METERED:yes (guessed)

GENERAL.DEVICE:virbr0
GENERAL.STATE:100 (connected (externally))
GENERAL.METERED:no (guessed)
"""
PHONE_IS_OFF = """\
GENERAL.DEVICE:eno1
GENERAL.STATE:100 (connected)
GENERAL.METERED:no

GENERAL.DEVICE:cdc-wdm0
GENERAL.STATE:30 (disconnected)
GENERAL.METERED:yes
"""


@pytest.mark.parametrize(("answer", "reading"), list(BUS.items()))
def test_what_the_bus_says(answer: str, reading: Reading) -> None:
    assert of_bus(answer) == reading


@pytest.mark.parametrize("answer", ["", "u", "u 5", "u -1", "s 1", "u 1 1", "b true", "u one", "1"])
def test_what_the_bus_has_never_said_is_not_known(answer: str) -> None:
    assert of_bus(answer) == "unknown"


@pytest.mark.parametrize(
    ("answer", "reading"),
    [
        (AT_HOME, "guess no"),
        (TETHERED, "guess yes"),
        (PHONE_IS_OFF, "no"),
        (PHONE_IS_OFF.replace("30 (disconnected)", "100 (connected)"), "yes"),
        (AT_HOME.replace("no (guessed)", "nein (vermutet)"), "unknown"),
        ("", "unknown"),
    ],
)
def test_what_devices_say(answer: str, reading: Reading) -> None:
    assert of_devices(answer) == reading


@given(st.text(max_size=200))
def test_any_answer_is_read(answer: str) -> None:
    assert of_bus(answer) in READINGS
    assert of_devices(answer) in READINGS
    assert of_devices(f"GENERAL.STATE:100\nGENERAL.METERED:{answer}") in READINGS


def test_whoever_is_asked_first_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(name: str, text: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)

    def reading() -> Reading:
        return asyncio.run(metered.read())

    monkeypatch.setenv("PATH", str(tmp_path))
    assert reading() == "unknown"  # neither is there
    program("nmcli", 'echo "GENERAL.STATE:100 (connected)"; echo "GENERAL.METERED:yes"')
    assert reading() == "yes"
    program("busctl", 'echo "Failed to connect to bus" >&2; exit 1')
    assert reading() == "yes"
    program("busctl", '[ "$LC_ALL" = C ] && [ "$8" = "" ] && [ "$7" = Metered ] && echo "u 4"')
    assert reading() == "guess no"


def test_nobody_waits_for_a_program_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "busctl").write_text("#!/bin/sh\nwhile :; do :; done\n")
    (tmp_path / "busctl").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(metered, "ASK_S", 0.1)
    assert asyncio.run(metered.read()) == "unknown"


def test_the_owner_has_the_last_word() -> None:
    for reading in READINGS:
        assert metered.metered("yes", reading) == (True, "the setting metered is yes")
        assert metered.metered("no", reading) == (False, "the setting metered is no")


@pytest.mark.parametrize(
    ("reading", "costs", "why"),
    [
        ("unknown", False, "nobody knows whether this network is paid by the byte"),
        ("yes", True, "NetworkManager says that this network is metered"),
        ("no", False, "NetworkManager says that this network is not metered"),
        ("guess yes", True, "NetworkManager guesses that this network is metered"),
        ("guess no", False, "NetworkManager guesses that this network is not metered"),
    ],
)
def test_otherwise_the_system_is_believed(reading: Reading, costs: bool, why: str) -> None:
    assert metered.metered("auto", reading) == (costs, why)


@pytest.mark.parametrize(
    ("reading", "said", "paused"), list(itertools.product(READINGS, METERED, [False, True]))
)
def test_manners(reading: Reading, said: metered.Said, paused: bool) -> None:
    manner, why = metered.manners(reading, said, paused)
    if paused:
        assert (manner, why) == (Manner(gives=False, background=False), "this machine rests")
        return
    costs = said == "yes" or (said == "auto" and reading in ("yes", "guess yes"))
    assert manner == Manner(gives=not costs, background=not costs)
    assert why == metered.metered(said, reading)[1]


def test_who_is_carried_to_another_network_behaves_otherwise_and_says_why() -> None:
    readings: list[Reading] = ["no", "yes", "yes", "no"]
    said: list[str] = []

    async def read() -> Reading:
        return readings.pop(0)

    async def story() -> list[bool]:
        manner = Manners("auto", said.append, read)
        task = asyncio.create_task(manner.run())
        gives = []
        for _ in range(4):
            await asyncio.sleep(metered.LOOK_S / 2)
            gives.append(manner().gives)
            await asyncio.sleep(metered.LOOK_S / 2)
        manner.paused = True
        gives.append(manner().gives)
        task.cancel()
        return gives

    assert run_virtual(story()) == [True, False, False, True, False]
    assert [words.partition(" passed")[0] for words in said] == ["Data is not", "Data is"]
