"""How the work for one job ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    reason: str
    left: bool
    """We went, at somebody's wish; otherwise the job is over, or its host stayed away."""
    samples: int
    credit: float | None
    """As the host counts it; None where we left before it said so."""
    share: float | None = None
    """Ours of all samples that the job's members have given, as its host counted last."""
    title: str = ""
    """Of the job."""
    host: str = ""
    """Fingerprint of the key the host has proven; empty where it has proven none."""
    code: str = ""
    """Of the job; empty where no matchmaker sent us."""


def share_given(yours: int, given: int) -> float | None:
    """Of a job's samples; None where its host does not say, or nobody has given any."""
    return min(1.0, yours / given) if given else None
