"""What was found out about one thing, in plain words, with what to do where something is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["good", "warn", "bad", "skipped"]
Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]
"""What JSON can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    id: str
    """What it is about: the name of a check."""
    state: State
    """`warn`: something does not work, or not well; `bad`: so lending or hosting does not work."""
    words: str
    advice: str = ""
    """What to do, or how it could be found out; empty where there is nothing to do."""
    data: Mapping[str, Value] = field(default_factory=dict)
    """What was measured, for support. Nothing secret."""


def sound(findings: Iterable[Finding]) -> bool:
    """Whether nothing is in the way."""
    return all(finding.state != "bad" for finding in findings)
