"""How long to wait before trying again: full jitter under a doubling, capped ceiling.

When a server comes back, everyone who lost it is waiting to return; drawing the delay evenly from
[0, ceiling) spreads them over the whole interval instead of sending them in waves.
"""

from __future__ import annotations


def delay_s(attempt: int, random01: float, *, base_s: float = 0.2, cap_s: float = 10.0) -> float:
    """Seconds before attempt number `attempt` (from 0); `random01` is drawn from [0, 1)."""
    # 2.0**64 is far beyond any cap; the bound keeps a long night of attempts from overflowing.
    ceiling = min(cap_s, base_s * 2.0 ** min(max(attempt, 0), 64))
    return ceiling * random01
