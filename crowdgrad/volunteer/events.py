"""What a volunteer tells the person (or script) watching it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["state", "progress", "unit", "trouble", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: Kind
    text: str
    """One sentence in plain words."""
    stays: bool = False
    """It is still worth reading when the next event has come."""
    data: dict[str, str | int | float] = field(default_factory=dict)


Watch = Callable[[Event], None]
