"""What is kept of the parameters that units started from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crowdgrad.domain.work import Version
from crowdgrad.host.backups import RENEW_EVERY, Backups, HalfBackups, SharedBackups
from crowdgrad.numerics.half import HalfDifference
from crowdgrad.numerics.vectors import Vector

SIZE = 10


def version(count: int) -> Version:
    return Version(incarnation=0, count=count)


def vector(value: float) -> Vector:
    return np.full(SIZE, value, np.float32)


KINDS: list[Callable[[], Backups]] = [SharedBackups, lambda: HalfBackups(SIZE)]


@pytest.mark.parametrize("make", KINDS)
def test_what_was_kept_comes_back_until_it_is_dropped(make: Callable[[], Backups]) -> None:
    backups = make()
    for count in range(RENEW_EVERY + 2):
        backups.keep(version(count), vector(1.0 + 0.01 * count))
    for count in (0, 7, RENEW_EVERY + 1):
        np.testing.assert_allclose(backups.weights(version(count)), 1.0 + 0.01 * count, rtol=1e-3)
    before = backups.bytes
    backups.drop(version(7))
    backups.drop(version(7))
    assert version(7) not in backups
    assert version(8) in backups
    assert backups.bytes < before


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("diverged", [np.inf, 1e30])
def test_nothing_is_left_of_before_it_was_cleared(
    make: Callable[[], Backups], diverged: float
) -> None:
    backups = make()
    empty = backups.bytes
    backups.keep(version(0), vector(diverged))
    backups.clear()
    assert version(0) not in backups
    assert backups.bytes == empty
    backups.keep(version(1), vector(0.25))
    assert backups.weights(version(1)).tolist() == [0.25] * SIZE


class Interrupting(np.ndarray[Any, Any]):
    """A vector that, whenever somebody asks how large it is, lets a thread do its work first."""

    meanwhile: Callable[[], None]

    @property
    def nbytes(self) -> int:
        self.meanwhile()
        return 4 * len(self)


def on_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("half", [False, True])
def test_their_size_may_be_asked_while_a_thread_keeps_another(
    half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups: Backups = HalfBackups(SIZE) if half else SharedBackups()
    kept = 2

    def keep_another() -> None:
        nonlocal kept
        kept += 1
        backups.keep(version(kept), vector(0.0))

    def size_of(difference: HalfDifference) -> int:
        on_a_thread(keep_another)
        return 2 * SIZE

    for count in range(2):
        large = vector(1.0).view(Interrupting)
        large.meanwhile = lambda: on_a_thread(keep_another)
        backups.keep(version(count), vector(1.0) if half else large)
    monkeypatch.setattr(HalfDifference, "bytes", property(size_of))
    assert backups.bytes > 0
    assert kept > 2, "somebody did come between"
