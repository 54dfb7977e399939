"""`--events`: what happens, as one JSON object a line on standard output, for scripts."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from crowdgrad.errors import SettingError

if TYPE_CHECKING:
    from crowdgrad.volunteer.events import Watch

EVENTS_HELP = "for scripts: write what happens to standard output, one JSON object a line"


def check_stdout(events: bool, json_file: str | None) -> None:
    """Raises SettingError where two things would be written to standard output."""
    if events and json_file == "-":
        raise SettingError(
            "--events and --json - both write to standard output.",
            advice="Give --json a file, or leave one of them out.",
        )


class Lines:
    """Each with `event`, what kind of thing, and `at`, in seconds since 1970."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.time) -> None:
        self._out = out or sys.stdout
        self._clock = clock

    def write(self, event: str, content: Mapping[str, object]) -> None:
        row = {"event": event, "at": round(self._clock(), 3), **content}
        self._out.write(json.dumps(_finite(row), ensure_ascii=False) + "\n")
        self._out.flush()

    def watch(self) -> Watch:
        """For a volunteer: everything it says."""
        from crowdgrad.volunteer.events import Event

        def watch(event: Event) -> None:
            self.write(event.kind, {"text": event.text, "data": event.data})

        return watch


def _finite(value: object) -> object:
    """JSON has no NaN: what is not a finite number becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
