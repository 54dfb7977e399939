"""A real relay in its own process, for tests."""

from __future__ import annotations

from pathlib import Path

from tests.matchmaker.running import Service


class Running(Service):
    """`with Running(folder) as relay:` … `relay.port`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__("relay", folder, *arguments)
