"""How hard this machine may work, as its owner chose on the page: kept for the next time, too.

The settings count until somebody has chosen. A volunteer is started with the file itself
(`crowdgrad work --limits`), so what it says holds from the first moment on.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from crowdgrad.domain.manners import Limits
from crowdgrad.errors import SettingError
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.settings import Settings
from crowdgrad.volunteer.governor import limits_of, read_limits

NAME = "limits.json"


class Kept:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file = settings.home / NAME

    @property
    def file(self) -> Path | None:
        """Where they are; None: nobody has chosen any, or what is there makes no sense."""
        try:
            read_limits(self._file)
        except SettingError:
            return None
        return self._file

    def now(self) -> Limits:
        """What a volunteer would be started with."""
        return limits_of(self._settings) if self.file is None else read_limits(self._file)

    def keep(self, limits: Limits) -> None:
        """Raises DiskFull, CannotWrite."""
        with disk_errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, msgspec.json.encode(limits), private=True)
