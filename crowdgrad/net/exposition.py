"""Prometheus' text format (0.0.4), as `GET /metrics` answers it.

Texts in labels may be strangers' words: they are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]
"""What is added to the metric's name (mostly nothing), labels, value."""


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of one metric; none where nothing is known."""
    found = [_line(name + end, labels, value) for end, labels, value in samples]
    if found:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        yield from found


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
    return f"{name}{f'{{{inside}}}' if inside else ''} {_number(value)}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(value) if isinstance(value, int) else repr(float(value))
