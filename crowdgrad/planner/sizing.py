"""How many batches a member's unit has: the slower it is, the fewer, so that all take as long.

Where a slow member's unit is as large as the fastest one's, its update arrives when the parameters
have long moved on, or a round waits for it. With s seconds a batch, and the fastest at s₀, a member
gets max(1, most·s₀/s) batches, rounded.
"""

from __future__ import annotations


def unit_batches(most: int, mine_s: float | None, fastest_s: float | None) -> tuple[int, str]:
    """Batches for a member that needs `mine_s` a batch while the fastest needs `fastest_s`."""
    if mine_s is None or fastest_s is None or min(mine_s, fastest_s) <= 0:
        return most, f"full size, {most}: not measured yet"
    if mine_s <= fastest_s:
        return most, f"full size, {most}: nobody is faster"
    batches = max(1, round(most * (fastest_s / mine_s)))
    return batches, f"{batches} of {most}: the fastest is {mine_s / fastest_s:.1f} times as fast"
