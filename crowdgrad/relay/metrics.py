"""The relay in figures, for Prometheus, and whether it is up: `GET /metrics` and `GET /healthz`.

Every metric is a row of `METRICS`; docs/relay.md explains them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from crowdgrad.net import exposition
from crowdgrad.net.exposition import CONTENT_TYPE, Sample, of_process, plain, table
from crowdgrad.relay.switchboard import Switchboard

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "crowdgrad_relay_"


METRICS = table(
    PREFIX,
    ("hosts", "gauge", "Hosts that can be called."),
    ("pairs", "gauge", "Hosts and callers that are spliced."),
    ("waiting", "gauge", "Callers whose host has not answered yet."),
    ("throttled", "gauge", "Wires that wait because a limit on bytes is reached."),
    ("connections", "gauge", "Open connections."),
    ("keys", "gauge", "Keys whose bytes are remembered."),
    ("arrivals_total", "counter", "Connections accepted."),
    ("registrations_total", "counter", "Hosts that came, those who came again too."),
    ("pairs_total", "counter", "Pairs there have been."),
    ("measures_total", "counter", "Links that were measured."),
    ("bytes_total", "counter", "Bytes passed on, to hosts and to callers."),
    ("refusals_total", "counter", "Refusals, by reason."),
    ("ends_total", "counter", "Pairs that are over, by how they ended."),
    ("process_resident_memory_bytes", "gauge", "Memory of the process."),
    ("process_cpu_seconds_total", "counter", "Time its threads have computed."),
    ("process_open_fds", "gauge", "Open files and sockets."),
)


def render(board: Switchboard) -> str:
    return exposition.render(METRICS, {**_counted(board), **plain(of_process())})


def passed(board: Switchboard) -> tuple[int, int]:
    """Bytes to hosts and to callers, in all."""
    return (
        board.events.to_hosts + sum(pair.to_host for pair in board.pairs),
        board.events.to_callers + sum(pair.to_caller for pair in board.pairs),
    )


def _counted(board: Switchboard) -> dict[str, Iterable[Sample]]:
    events, (to_hosts, to_callers) = board.events, passed(board)
    figures = {
        "hosts": len(board.hosts),
        "pairs": len(board.pairs),
        "waiting": len(board.waiting),
        "throttled": len(board.turns),
        "connections": board.wires,
        "keys": len(board.meters),
        "arrivals_total": events.arrivals,
        "registrations_total": events.registrations,
        "pairs_total": events.pairs,
        "measures_total": events.measures,
    }
    found = plain(figures)
    found["bytes_total"] = [
        ("", (("to", "hosts"),), to_hosts),
        ("", (("to", "callers"),), to_callers),
    ]
    for name, label, counter in (
        ("refusals_total", "reason", events.refusals),
        ("ends_total", "end", events.ends),
    ):
        found[name] = [("", ((label, key),), count) for key, count in sorted(counter.items())]
    return found


def application(board: Switchboard) -> ASGIApp:
    """Two pages need no framework."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            status, kind, text = _page(board, scope["method"], scope["path"])
            headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store"),
                       (b"x-content-type-options", b"nosniff")]  # fmt: skip
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": text.encode()})

    return answer


def _page(board: Switchboard, method: str, path: str) -> tuple[int, str, str]:
    """Status, type, text."""
    if method not in ("GET", "HEAD"):
        return 405, "text/plain", "Only GET.\n"
    if path == "/metrics":
        return 200, CONTENT_TYPE, render(board)
    if path == "/healthz":
        said = {"status": "ok", "hosts": len(board.hosts), "pairs": len(board.pairs)}
        return 200, "application/json", json.dumps(said)
    return 404, "text/plain", "There is no such page.\n"


async def _live(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
