"""How much a late update counts: by patience over staleness.

    weight(τ) = 1 for τ ≤ patience, else patience/τ

Staleness-aware asynchronous SGD (Zhang et al. 2016, arXiv 1511.05950) divides the rate by τ; that
is a patience of 1. A larger one leaves the usual delays of a crowd in full, so that only those who
are late beyond them count less.
"""

from __future__ import annotations


def weight(staleness: int, patience: float) -> float:
    """What the rate is multiplied with. A patience of 0 (or below): every update counts in full."""
    if patience <= 0 or staleness <= patience:
        return 1.0
    return patience / staleness
