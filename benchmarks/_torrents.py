"""A BitTorrent swarm by libtorrent, between the same machines and through the same shapers.

Two ways of seeding are tried, and the better one is reported: as libtorrent does by itself, and
super seeding, where the seed shows each piece once until others have it. Its settings are those
that served it best of a dozen tried here (`benchmarks/LOG.md`): TCP alone, nobody choked, and few
blocks asked for ahead, so that what is asked for is still rare when it comes.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from _peers import BUILT, PEERS, Failed, build
from _shaped import Machine
from _spreading import Receiver, Spreading, spread

DRIVER = PEERS / "libtorrent" / "driver.py"
PYTHON = BUILT / "libtorrent" / "bin" / "python"
SETTINGS: Mapping[str, object] = {
    "enable_incoming_utp": False,
    "enable_outgoing_utp": False,
    "unchoke_slots_limit": 16,
    "max_out_request_queue": 32,
    "request_queue_time": 1,
    "send_buffer_watermark": 64 << 10,
    "send_buffer_watermark_factor": 10,
}
ROLES = ("seed", "super")


def prepare(file: Path, torrent: Path) -> str:
    """Install it where it is not, and make the torrent; why not, if not."""
    try:
        build("libtorrent")
    except (Failed, OSError) as error:
        return str(error)
    subprocess.run([str(PYTHON), str(DRIVER), "make", str(file), str(torrent)], check=True)
    return ""


def torrent_spread(
    role: str,
    machines: Sequence[Machine],
    file: Path,
    torrent: Path,
    folder: Path,
    *,
    chunks: int,
    limit_s: float,
    settings: Mapping[str, object] = SETTINGS,
) -> Spreading:
    """From the first machine to all others. What they kept is removed afterwards."""
    source, *others = machines
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        peers = []
        for number, machine in enumerate(machines):
            own = folder / f"peer-{number}"
            own.mkdir(parents=True)
            # Each calls those before it: of two that call each other one would be sent away.
            known = [other.address for other in machines[:number]]
            command = [str(PYTHON), str(DRIVER), "peer", str(torrent),
                       str(own if number else file.parent), machine.address,
                       json.dumps(settings), "leech" if number else role, *known]  # fmt: skip
            peer = Receiver(f"libtorrent-{number}", machine, command, folder / f"{number}.log")
            stack.callback(peer.close)
            peers.append(peer)
        peers[0].wait()
        peers[0].begin()
        title = f"libtorrent ({role}), {len(others)} volunteers"
        return spread(title, source, peers[1:], chunks=chunks, limit_s=limit_s)
