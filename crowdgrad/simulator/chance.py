"""Dice: everything random in the virtual world comes from a seed, and each has dice of its own."""

from __future__ import annotations

import random

Dice = random.Random


def dice_of(seed: str) -> Dice:
    return Dice(seed)


def others(dice: Dice) -> Dice:
    """Dice for somebody else: how often they are thrown changes nothing here."""
    return Dice(dice.random())
