"""How many batches a member's unit has: the slower it is, the fewer, so that all take as long.

Where a slow member's unit is as large as the others', its update arrives when the parameters have
long moved on, or a round waits for it. With s seconds of computing a batch, where s₀ is usual, a
member gets max(1, most·s₀/s) batches, rounded. Computing, not waiting: on a slow link units should
be large.
"""

from __future__ import annotations


def unit_batches(most: int, mine_s: float | None, usual_s: float | None) -> tuple[int, str]:
    """Batches for a member that needs `mine_s` a batch where `usual_s` is usual."""
    if mine_s is None or usual_s is None or min(mine_s, usual_s) <= 0:
        return most, f"full size, {most}: not measured yet"
    if mine_s <= usual_s:
        return most, f"full size, {most}: as fast as the others"
    batches = max(1, round(most * (usual_s / mine_s)))
    return batches, f"{batches} of {most}: others are {mine_s / usual_s:.1f} times as fast"
