"""Lines of metrics.jsonl and TensorBoard's numbers: what is written, how often, how much."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdgrad.domain.work import Version
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.members.departures import Departure
from crowdgrad.host.telling.metrics import (
    MetricsLog,
    scalars,
    score_scalars,
    step_of,
    training_line,
)
from crowdgrad.host.telling.status import Status, TimeSplit
from crowdgrad.planner.label_noise import UNKNOWN, LabelNoise
from tests.cli.test_display import a_status

SCORES = Scores(
    kind="validate", version=Version(incarnation=1, count=42), epoch=1.0, at_s=2.0,
    loss=float("nan"), metrics={"accuracy": 0.97}, train_loss=0.3,
)  # fmt: skip


class Kept:
    """A metrics.jsonl in memory, and how large it would be."""

    def __init__(self, board: Path | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self.bytes = 0
        self.log = MetricsLog(self._append, board, wall=lambda: 1.7e9)

    def _append(self, line: dict[str, object]) -> None:
        text = json.dumps(line, allow_nan=False)
        self.bytes += len(text) + 1
        self.lines.append(json.loads(text))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]


def crowd(size: int, *, units: int) -> Status:
    """So many volunteers, each with so many units done and numbers of ordinary length."""
    status = a_status()
    times = TimeSplit(compute_s=1234.5678, exchange_s=234.56789, wait_s=34.567891)
    members = [
        replace(
            status.members[0],
            position=number,
            id=f"v{number}",
            name=f"volunteer {number}",
            units=units + number,
            samples=64 * units,
            samples_per_s=123.456789,
            mean_staleness=1.23456789,
            bytes_received=10**9 + units,
            bytes_sent=10**9 + units,
            times=times,
        )
        for number in range(size)
    ]
    return replace(status, members=members, times=times, samples_per_s=12345.6789)


def test_one_line_a_second() -> None:
    kept = Kept()
    for tick in range(101):
        kept.log.note(tick / 10, a_status())
    assert len(kept.of("training")) == 11
    assert kept.of("training")[0]["volunteers"] == 1
    assert kept.of("training")[0]["departures"] == 1


def test_volunteers_are_written_when_they_have_done_something() -> None:
    kept = Kept()
    status = crowd(3, units=5)
    for second in range(35):
        if second == 15:
            changed = replace(status.members[1], units=50, bytes_sent=7)
            status = replace(status, members=[status.members[0], changed, status.members[2]])
        if second == 25:  # a heartbeat is not worth a line
            noisy = replace(status.members[2], bytes_sent=status.members[2].bytes_sent + 9)
            status = replace(status, members=[*status.members[:2], noisy])
        kept.log.note(float(second), status)
    told = [[member["position"] for member in line["members"]] for line in kept.of("volunteers")]
    assert told == [[0, 1, 2], [1]]
    assert kept.of("volunteers")[1]["members"][0]["units"] == 50


@pytest.mark.parametrize(("size", "most"), [(10, 3.5), (40, 6.5), (1000, 6.5)])
def test_the_file_stays_small_whatever_the_crowd(size: int, most: float) -> None:
    """Megabytes an hour are what the documentation promises."""
    kept, seconds, step = Kept(), 1000, 50
    for second in range(0, seconds, step):
        kept.log.note(float(second), crowd(size, units=second))
    a_second = sum(len(json.dumps(line)) for line in kept.of("training")) * step
    # The lines of volunteers would come oftener than we asked, where they are few.
    a_look = sum(len(json.dumps(line)) for line in kept.of("volunteers"))
    a_look *= max(1.0, step / max(10.0, size / 4.0))
    assert 1.0 < (a_second + a_look) * 3600 / seconds / 1e6 < most


def test_departures_are_written_once_with_their_reasons() -> None:
    kept, status = Kept(), a_status()
    kept.log.note(0.0, replace(status, departures=[], departures_by_kind={}))
    kept.log.note(1.0, status)
    kept.log.note(2.0, status)
    (line,) = kept.of("departure")
    assert (line["name"], line["reason"]) == ("ben", "left: the volunteer stopped")
    more = [_gone(f"guest {n}") for n in range(20)]
    kept.log.note(3.0, replace(status, departures=more, departures_by_kind={"left": 31}))
    assert [line["name"] for line in kept.of("departure")][1:] == [gone.name for gone in more]


def _gone(name: str) -> Departure:
    return Departure(at_s=1.0, who="x", name=name, reason="left: x", stayed_s=1.0, samples=0)  # type: ignore[arg-type]


def test_setbacks_are_written_as_they_happen() -> None:
    kept, status = Kept(), a_status()
    kept.log.note(0.0, status)
    kept.log.note(0.1, replace(status, setbacks=1, notice="went back"))
    kept.log.note(0.2, replace(status, setbacks=1, notice="went back"))
    assert [line["notice"] for line in kept.of("setback")] == ["went back"]


def test_a_host_that_goes_on_says_so_and_tells_nothing_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    status = replace(a_status(), resumed=2, setbacks=3, version="4.17")
    kept.log.note(0.0, status)
    assert [line["kind"] for line in kept.lines] == ["restart", "training", "volunteers"]
    assert kept.lines[0]["version"] == "4.17"
    assert kept.lines[0]["resumed"] == 2
    kept.log.close(0.1, status)


def test_every_look_is_written_once() -> None:
    kept, status = Kept(), a_status()
    found = LabelNoise(share=0.25, error=0.01, threshold=2.3, samples=40, looks=1, reason="seen")
    for now, noise in enumerate((None, UNKNOWN, found, found, replace(found, looks=2))):
        kept.log.note(0.1 * now, replace(status, label_noise=noise))
    assert [(line["share"], line["looks"]) for line in kept.of("look")] == [
        (None, 0), (0.25, 1), (0.25, 2),
    ]  # fmt: skip


def test_the_end_is_written_whenever_it_comes() -> None:
    kept = Kept()
    kept.log.note(0.0, crowd(2, units=3))
    kept.log.close(0.1, crowd(2, units=4))
    assert len(kept.of("training")) == 2
    assert [line["members"][0]["units"] for line in kept.of("volunteers")] == [3, 4]


def test_evaluations_are_written_with_what_they_found() -> None:
    kept = Kept()
    kept.log.scored(SCORES)
    assert kept.lines == [{
        "kind": "validate", "at_s": 2.0, "epoch": 1.0, "loss": None,
        "metrics": {"accuracy": 0.97}, "train_loss": 0.3, "version": "1.42",
    }]  # fmt: skip


def test_the_board_has_the_same_numbers(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.log.note(0.0, a_status())
    kept.log.scored(SCORES)
    kept.log.close(9.0, a_status())
    (file,) = tmp_path.iterdir()
    data = file.read_bytes()
    for tag in scalars(a_status()):
        assert tag.encode() in data
    assert b"validation/accuracy" in data
    assert b"validation/loss" not in data, "it was not finite"


def test_a_board_that_cannot_be_written_costs_nothing_else(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").touch()
    kept = Kept(tmp_path / "file")
    kept.log.note(0.0, a_status())
    kept.log.scored(SCORES)
    kept.log.close(0.1, a_status())
    assert [line["kind"] for line in kept.lines if line["kind"] != "volunteers"] == [
        "training", "validate", "training"]  # fmt: skip
    assert len(caplog.records) == 1


def test_steps_are_changes_of_the_parameters() -> None:
    assert step_of(replace(a_status(), version="3.141")) == 141
    assert set(score_scalars(replace(SCORES, kind="test"))) == {"test/loss", "test/accuracy"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_what_is_not_finite_is_null(value: float | None) -> None:
    assert training_line(replace(a_status(), train_loss=value))["train_loss"] is None
