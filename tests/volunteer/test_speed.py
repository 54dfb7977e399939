"""How fast the machine is: measured once a day, remembered whole or not at all."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import msgspec
import pytest

from crowdgrad.volunteer import speed
from crowdgrad.volunteer.speed import NAME, VALID_S, Measured, known, note_download, recall

NOW = 1e9


def test_a_machine_can_multiply() -> None:
    assert 0 < speed.gflops() < 1e5


def test_it_is_the_median_and_does_not_go_on_for_ever() -> None:
    flop = 2 * speed.SIDE**3 * speed.PRODUCTS
    # began; then start, end and a look for each round: 1 s, 1 s, and no third one
    clock = iter([0.0, 0.0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.9, 0.9])
    assert speed.gflops(clock=lambda: next(clock)) == pytest.approx(flop / 0.1 / 1e9, abs=1e-3)
    assert list(clock) == [], "three rounds, then it has taken long enough"
    stuck = itertools.repeat(5.0)
    assert speed.gflops(clock=lambda: next(stuck)) > 0, "a clock that stands still is no error"


def test_it_is_measured_once_a_day(tmp_path: Path) -> None:
    answers = iter([1.5, 2.5])
    measure = answers.__next__
    home = tmp_path / "home"
    assert known(home, NOW, measure).gflops == 1.5
    assert known(home, NOW + VALID_S - 1, measure).gflops == 1.5
    assert known(home, NOW + VALID_S, measure).gflops == 2.5
    assert known(home, NOW, lambda: 3.5).gflops == 3.5, "a clock that was set back"
    assert list(home.iterdir()) == [home / NAME]


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b'{"at": -1}', b'{"at": 1e9, "gflops": -1}', b'{"at": 1e9, "gflops": 1e30}',
     b"\xff", b"[" * 3000, b'{"at": 1e9}' + b" " * 5000],
)  # fmt: skip
def test_a_damaged_file_is_passed_over(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    assert recall(tmp_path, NOW) is None
    assert known(tmp_path, NOW, lambda: 7.0) == Measured(at=NOW, gflops=7.0)
    assert recall(tmp_path, NOW) == Measured(at=NOW, gflops=7.0)


def test_data_that_came_says_how_fast_it_comes(tmp_path: Path) -> None:
    note_download(tmp_path, NOW, 10_000_000, 1.0)
    assert recall(tmp_path, NOW) is None, "nothing else is known of the machine"
    known(tmp_path, NOW, lambda: 1.0)
    for count, seconds, mbps in (
        (999_999, 1e-3, 0.0),  # too little to say
        (10_000_000, 0.0, 0.0),
        (10_000_000, 4.0, 20.0),
        (10_000_000, 8.0, 20.0),  # a slower host
        (10_000_000, 2.0, 40.0),
    ):
        note_download(tmp_path, NOW + 5, count, seconds)
        found = recall(tmp_path, NOW + 5)
        assert found == Measured(at=NOW, gflops=1.0, download_mbps=mbps)


def test_a_disk_that_takes_nothing_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "home").touch()
    with caplog.at_level(logging.WARNING):
        assert known(tmp_path / "home", NOW, lambda: 1.0).gflops == 1.0
    assert "cannot be kept" in caplog.text


def test_what_is_written_can_be_read() -> None:
    found = Measured(at=NOW, gflops=81.9, download_mbps=55.5)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Measured) == found
