"""What this machine says of itself: whether somebody uses it, on what it runs, how busy it is.

Of a screen on Linux, `xprintidle` knows where it is installed and X11 is all there is, else logind,
which hears from the desktop; on macOS `ioreg`. Of terminals, here and over SSH, the kernel notes
when somebody last typed. Whoever was touched last counts. Of batteries the kernel tells on Linux,
on macOS `pmset`. Where nobody answers, as on Windows, nothing is known, and nothing is guessed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from crowdgrad.domain.manners import Readings
from crowdgrad.settings import child_environment

ASK_S = 2.0
EVERY_S = 10.0
"""How often programs are asked: it costs a process each time."""
MOST_ANSWER = 4096
MOST_DIGITS = 20
SUPPLIES = Path("/sys/class/power_supply")
DEVICES = Path("/dev")
TERMINALS = ("pts/[0-9]*", "tty[1-9]*", "ttys[0-9]*")
"""Of Linux, its consoles, and of macOS."""
_LOGIND = (
    "--system", "--no-pager", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager", "IdleHint", "IdleSinceHint",
)  # fmt: skip
_IOREG = ("-r", "-d", "1", "-c", "IOHIDSystem")
_HID_IDLE = re.compile(r'"HIDIdleTime" = ([0-9]{1,20})', re.ASCII)
_PMSET = ("-g", "batt")
_DRAWING = re.compile(r"drawing from '(AC|Battery|UPS) Power'")
_CHARGED = re.compile(r"\t([0-9]{1,3})%;", re.ASCII)
_OUTSIDE = ("Mains", "USB", "Wireless")
"""What a battery is charged from, as the kernel calls it."""

Ask = Callable[..., str | None]
"""What a program, with these words, answers; None: it is not here, or does not know."""


class Machine:
    """This one. Asked from one thread at a time."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        ask: Ask | None = None,
        devices: Path = DEVICES,
        supplies: Path = SUPPLIES,
    ) -> None:
        self._wall = wall
        self._ask = ask or _answer
        self._devices = devices
        self._supplies = supplies
        self._asked_at: float | None = None
        self._screen_at: float | None = None
        """When a screen's user was last here, as of the last time we asked."""
        self._power: tuple[bool | None, float | None] = (None, None)
        """What another program than the kernel said of a battery then."""

    async def read(self) -> Readings:
        """It may take a moment, and nobody is held up meanwhile."""
        return await asyncio.to_thread(self.look)

    def look(self) -> Readings:
        now = self._wall()
        if self._asked_at is None or not 0 <= now - self._asked_at < EVERY_S:
            self._asked_at = now
            self._screen_at, self._power = self._screen(now), self._pmset()
        supplies = supplies_in(self._supplies)
        on_battery, battery = power(supplies) if supplies else self._power
        touched = [at for at in (self._screen_at, last_typed(self._devices)) if at is not None]
        return Readings(
            at=now,
            minute_of_day=minute_of_day(now),
            idle_s=max(0.0, now - max(touched)) if touched else None,
            on_battery=on_battery,
            battery=battery,
            load=_load(),
        )

    def _screen(self, now: float) -> float | None:
        """When somebody sat here last, in seconds since 1970: the first who knows is believed."""
        asked: list[tuple[Callable[[str, float], float | None], tuple[str, ...]]] = [
            (of_logind, ("busctl", *_LOGIND)),
            (of_ioreg, ("ioreg", *_IOREG)),
        ]
        if sees_all_input(os.environ):
            asked.insert(0, (of_xprintidle, ("xprintidle",)))
        for read, words in asked:
            said = self._ask(*words)
            if said is not None and (since := read(said, now)) is not None:
                return since
        return None

    def _pmset(self) -> tuple[bool | None, float | None]:
        said = self._ask("pmset", *_PMSET)
        return of_pmset(said) if said is not None else (None, None)


def minute_of_day(at: float) -> int:
    """By this machine's own clock."""
    local = time.localtime(at)
    return 60 * local.tm_hour + local.tm_min


def sees_all_input(environment: Mapping[str, str]) -> bool:
    """Whether X11 hears of all that is typed and pointed at on this machine's own screen.

    Under Wayland it hears only what goes to windows of X11 programs, and would call idle whoever
    types elsewhere. Over `ssh -X` the display is another machine's: a name stands before its colon.
    """
    wayland = environment.get("WAYLAND_DISPLAY") or environment.get("XDG_SESSION_TYPE") == "wayland"
    return environment.get("DISPLAY", "").startswith(":") and not wayland


def of_xprintidle(answer: str, now: float) -> float | None:
    """When a key or the mouse was last touched: it writes the milliseconds since then."""
    word = answer.strip()
    return now - int(word) / 1000 if _is_number(word) else None


def of_ioreg(answer: str, now: float) -> float | None:
    """The same on macOS: it writes the nanoseconds since then."""
    found = _HID_IDLE.search(answer)
    return now - int(found[1]) / 1e9 if found is not None else None


def of_pmset(answer: str) -> tuple[bool | None, float | None]:
    """What `pmset -g batt` writes of a Mac: what it draws from, and a line for each battery."""
    drawing = _DRAWING.search(answer)
    levels = [min(100, int(level)) for level in _CHARGED.findall(answer)]
    if drawing is None or not levels:
        return None, None
    return drawing[1] != "AC", sum(levels) / len(levels) / 100


def of_logind(answer: str, now: float) -> float | None:
    """What `busctl get-property` writes of IdleHint and IdleSinceHint: `b true`, then `t 1699…`.

    Where no session is idle, somebody is here now. Microseconds since 1970; 0: nobody ever came.
    """
    words = answer.split()
    if len(words) != 4 or words[0] != "b" or words[2] != "t" or not _is_number(words[3]):
        return None
    if words[1] == "false":
        return now
    since = int(words[3]) / 1e6
    return since if since > 0 else None


def last_typed(devices: Path) -> float | None:
    """When somebody last typed into any terminal; None: there are none."""
    times: list[float] = []
    for pattern in TERMINALS:
        for terminal in devices.glob(pattern):
            try:
                times.append(terminal.stat().st_atime)
            except OSError:  # it was closed meanwhile
                continue
    return max(times, default=None)


def supplies_in(folder: Path) -> list[dict[str, str]]:
    """What the kernel says of each battery and each charger."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    names = ("type", "scope", "online", "status", "capacity")
    return [{name: _text(supply / name) for name in names} for supply in found]


def power(supplies: Iterable[Mapping[str, str]]) -> tuple[bool | None, float | None]:
    """Whether it runs on battery, and how full that is; None: it has none.

    A mouse has a battery, too: its scope says so.
    """
    ours = [supply for supply in supplies if supply.get("scope") != "Device"]
    batteries = [supply for supply in ours if supply.get("type") == "Battery"]
    if not batteries:
        return None, None
    outside = [supply.get("online") for supply in ours if supply.get("type") in _OUTSIDE]
    discharging = any(battery.get("status") == "Discharging" for battery in batteries)
    plugged = "1" in outside
    return discharging and not plugged, _level(batteries)


def _level(batteries: Sequence[Mapping[str, str]]) -> float | None:
    said = [battery.get("capacity", "") for battery in batteries]
    known = [min(100, int(word)) for word in said if _is_number(word)]
    return sum(known) / len(known) / 100 if known else None


def _is_number(word: str) -> bool:
    return len(word) <= MOST_DIGITS and word.isascii() and word.isdigit()


def _text(file: Path) -> str:
    try:
        return file.read_bytes()[:MOST_ANSWER].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _answer(command: str, *words: str) -> str | None:
    program = shutil.which(command)
    if program is None:
        return None
    try:
        asked = subprocess.run(
            [program, *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=ASK_S,
            check=True,
            env=child_environment({"LC_ALL": "C"}),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout[:MOST_ANSWER].decode("utf-8", "replace")
