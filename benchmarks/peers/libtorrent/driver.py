"""One peer of a BitTorrent swarm: libtorrent with everything off that looks for strangers.

driver.py make FILE TORRENT         a torrent of a file, in pieces of 256 KiB
driver.py peer TORRENT FOLDER ADDRESS SETTINGS ROLE PEER…
                                    ROLE: seed, super (a seed that shows each piece once), leech

A peer says `ready` on its standard output, and connects to all it was told of when a line comes on
its standard input. It says in JSON how many pieces it has, at most twice a second, and when it has
all of them: `complete` (the moment, of the monotonic clock) and `curve`. It serves on until its
standard input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import libtorrent as lt

PIECE = 256 << 10
PORT = 6881
POLL_S = 0.05
SAY_S = 0.5
OFF = dict.fromkeys(
    ("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp", "close_redundant_connections"),
    False,
)


def make(file: Path, torrent: Path) -> None:
    files = lt.list_files(str(file))
    made = lt.create_torrent(files, PIECE, flags=lt.create_torrent.v1_only)
    lt.set_piece_hashes(made, str(file.parent))
    torrent.write_bytes(lt.bencode(made.generate()))


class Peer:
    def __init__(self, torrent: str, folder: str, address: str, settings: str, role: str) -> None:
        chosen = {
            **OFF,
            "listen_interfaces": f"{address}:{PORT}",
            "allow_multiple_connections_per_ip": True,
            "alert_mask": 0,
            **json.loads(settings),
        }
        self._session = lt.session(chosen)
        wanted = lt.add_torrent_params()
        wanted.ti = lt.torrent_info(torrent)
        wanted.save_path = folder
        flags = lt.torrent_flags
        wanted.flags &= ~(flags.auto_managed | flags.paused)
        if role in ("seed", "super"):
            wanted.flags |= flags.seed_mode
        if role == "super":
            wanted.flags |= flags.super_seeding
        self._torrent = self._session.add_torrent(wanted)
        self._curve: list[tuple[float, int]] = []

    def connect(self, peers: list[str]) -> None:
        for peer in peers:
            self._torrent.connect_peer((peer, PORT))

    def watch(self) -> None:
        """Say how it goes until all is there."""
        pieces, said = -1, 0.0
        while True:
            status, now = self._torrent.status(), time.monotonic()
            if status.num_pieces != pieces:
                pieces = status.num_pieces
                self._curve.append((now, pieces))
            if status.is_seeding:
                print(json.dumps({"complete": now, "curve": self._curve}), flush=True)
                return
            if now - said > SAY_S:
                said = now
                print(json.dumps({"chunks": pieces}), flush=True)
            time.sleep(POLL_S)


def main() -> None:
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    torrent, folder, address, settings, role, *peers = sys.argv[2:]
    peer = Peer(torrent, folder, address, settings, role)
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    peer.connect(peers)
    threading.Thread(target=peer.watch, daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # nobody waits for its farewells


if __name__ == "__main__":
    main()
