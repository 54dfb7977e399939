"""What the machine says of itself: each word of it read, and nothing guessed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crowdgrad.volunteer import readings
from crowdgrad.volunteer.readings import (
    EVERY_S,
    Machine,
    of_ioreg,
    of_logind,
    of_pmset,
    of_xprintidle,
    power,
)

NOW = 1_800_000_000.0
BATTERY = {"type": "Battery", "status": "Discharging", "capacity": "80"}
MAINS = {"type": "Mains", "online": "0"}


@pytest.mark.parametrize(
    ("answer", "since"),
    [
        ("b false\nt 0\n", NOW),
        ("b true\nt 1799999000000000\n", NOW - 1000),
        ("b true\nt 0\n", None),
        ("b true\n", None),
        ("", None),
        ("s nonsense\nt x\n", None),
        ("b true\nt ²\n", None),
        (f"b true\nt {'9' * 400}\n", None),
    ],
)
def test_logind(answer: str, since: float | None) -> None:
    assert of_logind(answer, NOW) == since


@pytest.mark.parametrize(("answer", "since"), [("2500\n", NOW - 2.5), ("?", None), ("", None)])
def test_xprintidle(answer: str, since: float | None) -> None:
    assert of_xprintidle(answer, NOW) == since


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": ":1.0", "XDG_SESSION_TYPE": "x11"}, True),
        ({"DISPLAY": ":0", "XDG_SESSION_TYPE": "tty"}, True),  # startx
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": ""}, True),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, False),
        ({"DISPLAY": ":0", "XDG_SESSION_TYPE": "wayland"}, False),
        ({"DISPLAY": "localhost:10.0"}, False),  # ssh -X
        ({"DISPLAY": "192.0.2.7:0"}, False),
        ({"DISPLAY": ""}, False),
        ({}, False),
    ],
)
def test_xprintidle_is_believed_only_where_x11_hears_all_input(
    environment: dict[str, str], asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that nobody has typed for an hour; logind, that somebody is there."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_SESSION_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    said = {"xprintidle": "3600000\n", "busctl": "b false\nt 0\n"}
    machine = Machine(
        wall=lambda: NOW,
        ask=lambda *words: said.get(words[0]),
        devices=tmp_path,
        supplies=tmp_path / "none",
    )
    assert machine.look().idle_s == (3600 if asked else 0)


IOREG = """\
+-o IOHIDSystem  <class IOHIDSystem, id 0x100000488, registered, matched, active, busy 0>
    {
      "HIDIdleTime" = 2500000000
      "IOClass" = "IOHIDSystem"
    }
"""
ON_BATTERY = """\
Now drawing from 'Battery Power'
 -InternalBattery-0 (id=4325475)\t85%; discharging; 3:41 remaining present: true
"""
CHARGING = """\
Now drawing from 'AC Power'
 -InternalBattery-0 (id=4325475)\t60%; charging; 1:12 remaining present: true
"""


@pytest.mark.parametrize(("answer", "since"), [(IOREG, NOW - 2.5), ("", None), ("{}", None)])
def test_ioreg(answer: str, since: float | None) -> None:
    assert of_ioreg(answer, NOW) == since


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (ON_BATTERY, (True, 0.85)),
        (CHARGING, (False, 0.6)),
        ("Now drawing from 'AC Power'\n", (None, None)),  # a desktop has none
        ("", (None, None)),
    ],
)
def test_pmset(answer: str, found: tuple[bool | None, float | None]) -> None:
    assert of_pmset(answer) == found


def test_a_mac_says_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    said = {"ioreg": IOREG, "pmset": ON_BATTERY}
    machine = Machine(
        wall=lambda: NOW,
        ask=lambda *words: said.get(words[0]),
        devices=tmp_path,
        supplies=tmp_path / "none",
    )
    found = machine.look()
    assert (found.idle_s, found.on_battery, found.battery) == (2.5, True, 0.85)


@pytest.mark.parametrize(
    ("supplies", "found"),
    [
        ([], (None, None)),
        ([MAINS], (None, None)),
        ([BATTERY, MAINS], (True, 0.8)),
        ([BATTERY], (True, 0.8)),
        ([BATTERY, {**MAINS, "online": "1"}], (False, 0.8)),
        ([{**BATTERY, "status": "Charging"}], (False, 0.8)),
        ([BATTERY, {**BATTERY, "capacity": "40"}], (True, 0.6000000000000001)),
        ([{**BATTERY, "capacity": ""}], (True, None)),
        ([{**BATTERY, "scope": "Device"}], (None, None)),  # a mouse
    ],
)
def test_batteries(supplies: list[dict[str, str]], found: tuple[bool | None, float | None]) -> None:
    assert power(supplies) == pytest.approx(found)


def test_files_of_the_kernel_are_read(tmp_path: Path) -> None:
    supply = tmp_path / "BAT0"
    supply.mkdir()
    for name, text in BATTERY.items():
        (supply / name).write_text(text + "\n")
    assert power(readings.supplies_in(tmp_path)) == (True, 0.8)
    assert readings.supplies_in(tmp_path / "none") == []


def test_whoever_was_touched_last_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    (tmp_path / "pts").mkdir()
    for name, ago_s in (("pts/0", 400), ("pts/7", 50), ("tty1", 9000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOW - ago_s, NOW))
    said: list[str | None] = [None, "b false\nt 0\n"]
    now = [NOW]
    machine = Machine(
        wall=lambda: now[0],
        ask=lambda *words: said[-1] if words[0] == "busctl" else None,
        devices=tmp_path,
        supplies=tmp_path,
    )
    assert machine.look().idle_s == 0
    said.append(None)
    now[0] += EVERY_S / 2
    assert machine.look().idle_s == EVERY_S / 2, "it is not asked that often"
    now[0] += EVERY_S
    assert machine.look().idle_s == 50 + 1.5 * EVERY_S


def test_where_nobody_can_say_nothing_is_known(tmp_path: Path) -> None:
    machine = Machine(ask=lambda *words: None, devices=tmp_path, supplies=tmp_path)
    found = machine.look()
    assert (found.idle_s, found.on_battery, found.battery) == (None, None, None)
    assert 0 <= found.minute_of_day < 1440
