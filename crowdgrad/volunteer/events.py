"""What a volunteer tells the person (or script) watching it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["state", "effort", "progress", "unit", "trouble", "note"]
"""effort: how hard it works from now on, and why."""
Phase = Literal["starting", "looking", "working", "waiting"]
"""Where the work is: at its beginning or that of a job, on the way to one, at it, or held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: Kind
    text: str
    """One sentence in plain words."""
    stays: bool = False
    """It is still worth reading when the next event has come."""
    data: dict[str, str | int | float] = field(default_factory=dict)
    phase: Phase | None = None
    """Where the work is from now on; None: as before."""


Watch = Callable[[Event], None]
