"""How a command reaches a running host: by its `control.json`, over HTTP, on this machine.

No proxies, no redirections: one address, one answer. The token goes only to a host that has just
said it has this run, since another process may listen where a dead host did.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import msgspec

from crowdgrad.errors import TurnedAway, Unreachable
from crowdgrad.host.remote.control import Answer, Wish
from crowdgrad.host.remote.control_file import NAME, Entrance, read

PATIENCE_S = 5.0
MAX_ANSWER = 16 << 20


def live_status(folder: Path, run: str, patience_s: float = PATIENCE_S) -> dict[str, Any] | None:
    """The status of a run whose host answers; None where none does."""
    entrance = read(folder / NAME)
    return None if entrance is None else _status(entrance, run, patience_s)


def steer(folder: Path, run: str, wish: Wish) -> Answer | None:
    """What its host answers; None where no host of this run does. Raises TurnedAway."""
    entrance = read(folder / NAME)
    if entrance is None or _status(entrance, run, PATIENCE_S) is None:
        return None
    try:
        code, body = _call(
            entrance, "POST", f"/{wish}", {"Authorization": f"Bearer {entrance.token}"}, PATIENCE_S
        )
    except Unreachable:
        return None  # it has just gone
    if code != 200:
        raise TurnedAway(
            f"The host of {run} does not take this wish (HTTP {code}).",
            advice="Look again with `crowdgrad runs`.",
        )
    try:
        return msgspec.json.decode(body, type=Answer)
    except msgspec.DecodeError:
        raise TurnedAway(
            f"The host of {run} gave an answer that makes no sense.",
            advice="Is it of another version?",
        ) from None


def _status(entrance: Entrance, run: str, patience_s: float) -> dict[str, Any] | None:
    try:
        code, body = _call(entrance, "GET", "/status", {}, patience_s)
        status = json.loads(body)
    except (Unreachable, ValueError):
        return None
    fits = code == 200 and isinstance(status, dict) and status.get("job") == run
    return status if fits else None


def _call(
    entrance: Entrance, method: str, path: str, headers: dict[str, str], patience_s: float
) -> tuple[int, bytes]:
    """Raises Unreachable."""
    connection = http.client.HTTPConnection(*entrance.address, timeout=patience_s)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(MAX_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"Nobody answers at {entrance.url}: {error}.") from error
    finally:
        connection.close()
