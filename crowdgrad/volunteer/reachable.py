"""Whether others can dial this machine: a matchmaker tries, once a day.

A volunteer needs no open port. But one that can be dialled can pass data on, so the matchmaker is
told. A port is open for as long as it takes, with nobody behind it but whoever proves our key.
"""

from __future__ import annotations

import time
from pathlib import Path

from crowdgrad.errors import CrowdgradError
from crowdgrad.net import reaching
from crowdgrad.net.identity import Identity
from crowdgrad.net.ports import everywhere
from crowdgrad.net.transport import secure
from crowdgrad.net.transport.base import Connection
from crowdgrad.volunteer import speed

REACHED = "Others can dial this machine."
NOT_REACHED = "Nobody can dial this machine ({why}). That is fine: it dials."


async def look(url: str, key: Identity, home: Path) -> str:
    """Let the matchmaker dial us, and remember it; what was found, for a person. Empty: known, or
    nobody can tell."""
    measured = speed.recall(home, time.time())
    if measured is None or measured.reachable is not None:
        return ""
    try:
        listener = await secure.listen(everywhere(), 0, _nobody, key)
    except CrowdgradError:
        return ""
    try:
        found = await reaching.ask(url, key, (f"*:{listener.address[1]}",))
    except CrowdgradError:  # it has other things to do: another day
        return ""
    finally:
        await listener.close()
    speed.note_reachable(home, time.time(), found.any)
    return REACHED if found.any else NOT_REACHED.format(why=found.tried[0].why or "not tried")


async def _nobody(connection: Connection) -> None:
    """It was we who answered: more is not to be learned here."""
