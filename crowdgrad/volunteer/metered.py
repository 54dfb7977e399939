"""Whether this machine's network is paid by the byte, and what a volunteer does then.

On Linux NetworkManager knows, or guesses: it has one word for the whole machine (`Metered`), that
of the device with the best default route, and `nmcli` one for each device. Nobody else is asked.
Where nobody knows, the network counts as free: most are, and their owner can say otherwise.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from typing import Literal

from crowdgrad.replication.sharing import Manner
from crowdgrad.settings import child_environment

Reading = Literal["unknown", "yes", "no", "guess yes", "guess no"]
Said = Literal["auto", "yes", "no"]

ASK_S = 2.0
LOOK_S = 30.0
"""A laptop may be carried from one network to another."""
MOST_ANSWER = 64 << 10
READINGS: tuple[Reading, ...] = ("unknown", "yes", "no", "guess yes", "guess no")
"""In NetworkManager's own order: its numbers 0 to 4."""
_SPOKEN: dict[str, Reading] = {
    "yes": "yes", "no": "no", "yes (guessed)": "guess yes", "no (guessed)": "guess no",
}  # fmt: skip
_CAREFUL: tuple[Reading, ...] = ("yes", "guess yes", "no", "guess no", "unknown")
"""Which of several devices' words counts."""
_BUS = (
    "--system", "--no-pager", "get-property", "org.freedesktop.NetworkManager",
    "/org/freedesktop/NetworkManager", "org.freedesktop.NetworkManager", "Metered",
)  # fmt: skip
_DEVICES = ("-t", "-f", "GENERAL.DEVICE,GENERAL.STATE,GENERAL.METERED", "device", "show")
_CONNECTED = "100"


def manners(reading: Reading, said: Said, paused: bool) -> tuple[Manner, str]:
    """What a volunteer does, and why. `said`: its setting; `paused`: whether it rests."""
    if paused:
        return Manner(gives=False, background=False), "this machine rests"
    costs, why = metered(said, reading)
    return Manner(gives=not costs, background=not costs), why


def metered(said: Said, reading: Reading) -> tuple[bool, str]:
    """Whether to take the network for one that is paid by the byte, and why."""
    if said != "auto":
        return said == "yes", f"the setting metered is {said}"
    if reading == "unknown":
        return False, "nobody knows whether this network is paid by the byte"
    guess = "guesses" if reading.startswith("guess") else "says"
    costs = reading in ("yes", "guess yes")
    return costs, f"NetworkManager {guess} that this network is {'' if costs else 'not '}metered"


def said_of(setting: str) -> Said:
    """The setting, which was looked at when it was read."""
    assert setting in ("auto", "yes", "no"), setting
    return setting  # type: ignore[return-value]


class Manners:
    """How this machine uses its network by now: asked by whoever exchanges data with others."""

    def __init__(
        self, said: Said, note: Callable[[str], None], read: Callable[[], Awaitable[Reading]]
    ) -> None:
        """`note` hears when it becomes otherwise, and why."""
        self._said = said
        self._note = note
        self._read = read
        self._reading: Reading = "unknown"
        self.paused = False
        """Whether this machine rests."""
        self._before = self()

    def __call__(self) -> Manner:
        return manners(self._reading, self._said, self.paused)[0]

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            if self._said == "auto":
                self._reading = await self._read()
            manner, why = manners(self._reading, self._said, self.paused)
            if manner != self._before:
                self._before = manner
                what = "is" if manner.gives else "is not"
                self._note(f"Data {what} passed on to other volunteers: {why}.")
            await asyncio.sleep(LOOK_S)


async def read() -> Reading:
    """What the system says now; it may take a moment, and nobody is held up meanwhile."""
    return await asyncio.to_thread(_read)


def _read() -> Reading:
    answer = _ask("busctl", *_BUS)
    if answer is not None:
        return of_bus(answer)
    answer = _ask("nmcli", *_DEVICES)
    return of_devices(answer) if answer is not None else "unknown"


def of_bus(answer: str) -> Reading:
    """What `busctl get-property` writes: a type and a number, `u 4`."""
    words = answer.split()
    numbers = {f"{number}": reading for number, reading in enumerate(READINGS)}
    return numbers.get(words[1], "unknown") if len(words) == 2 and words[0] == "u" else "unknown"


def of_devices(answer: str) -> Reading:
    """What `nmcli -t device show` writes: lines of each device, an empty one between two.

    Of those connected, the one that has most to lose: which has the best route is not in it.
    """
    found: set[Reading] = {"unknown"}
    for block in answer.split("\n\n"):
        lines = (line.partition(":") for line in block.splitlines())
        values = {name.strip(): value.strip() for name, _, value in lines}
        if values.get("GENERAL.STATE", "").partition(" ")[0] == _CONNECTED:
            found.add(_SPOKEN.get(values.get("GENERAL.METERED", ""), "unknown"))
    return next(reading for reading in _CAREFUL if reading in found)


def _ask(command: str, *words: str) -> str | None:
    """Its answer; None: it is not here, or does not know."""
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
            env=child_environment({"LC_ALL": "C"}),  # it would answer in its owner's language
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout[:MOST_ANSWER].decode("utf-8", "replace")
