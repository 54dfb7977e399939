"""What a run's folder tells when its host has ended; what is torn or missing costs only itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from crowdgrad.host.telling import afterwards
from crowdgrad.host.telling.history import MOST


def training(at_s: float, loss: float | None) -> str:
    return json.dumps(
        {"kind": "training", "elapsed_s": at_s, "epochs_done": at_s / 10, "train_loss": loss}
    )


def validation(at_s: float, loss: float) -> str:
    return json.dumps(
        {"kind": "validate", "at_s": at_s, "epoch": at_s / 10, "loss": loss,
         "metrics": {"accuracy": 0.5}, "train_loss": None, "version": "0.7"}
    )  # fmt: skip


def test_curves_are_what_the_lines_say(tmp_path: Path) -> None:
    lines = [training(1, 2.0), validation(2, 1.5), '{"kind": "val', training(3, None), "[1]"]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"kind": "validate"}', "{tor"]))
    found = afterwards.curves(tmp_path, 100)
    assert [(point.at_s, point.loss) for point in found.training] == [(1, 2.0), (3, None)]
    assert [(point.at_s, point.loss) for point in found.evaluations] == [(2, 1.5)]
    assert found.evaluations[0].metrics == {"accuracy": 0.5}


def test_long_curves_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    lines = [validation(n, 1.0) for n in range(1, 101)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    found = afterwards.curves(tmp_path, 5).evaluations
    assert len(found) == 5
    assert (found[0].at_s, found[-1].at_s) == (1, 100)


def test_evaluations_without_a_sensible_time_are_left_out(tmp_path: Path) -> None:
    lines = [validation(at_s, 1.0) for at_s in (1.0, float("nan"), float("inf"), 2.0, 1.5)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert [point.at_s for point in afterwards.curves(tmp_path, 9).evaluations] == [1.0, 2.0]


def test_more_evaluations_than_anybody_keeps_are_told_evenly(tmp_path: Path) -> None:
    lines = [validation(n, 1.0) for n in range(3 * MOST)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    times = [point.at_s for point in afterwards.curves(tmp_path, 2 * MOST).evaluations]
    assert len(times) <= MOST
    assert (times[0], times[-1]) == (0.0, 3 * MOST - 1)
    assert max(later - before for before, later in itertools.pairwise(times)) <= 8


def test_the_log_is_numbered_and_its_times_are_seconds(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    said = {"time": "1970-01-01T00:01:00.500Z", "level": "INFO", "logger": "x", "message": "a"}
    text = "\n".join([json.dumps(said), "torn{", json.dumps({**said, "time": "never"})])
    (tmp_path / "logs" / "host.jsonl").write_text(text + "\n" + json.dumps(said))
    told = afterwards.log(tmp_path)
    assert [(line.n, line.at, line.level, line.text) for line in told.lines] == [
        (1, 60.5, "info", "a"),
        (3, 60.5, "info", "a"),
    ]
    assert told.next == 3


def test_the_last_status_is_there_once_it_is_over(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"state": "running"}')
    assert afterwards.status(tmp_path) is None
    (tmp_path / "job.json").write_text('{"state": "finished", "outcome": {"phase": "over"}}')
    assert json.loads(afterwards.status(tmp_path) or b"") == {"phase": "over"}


def test_an_empty_folder_tells_nothing(tmp_path: Path) -> None:
    assert afterwards.status(tmp_path) is None
    assert afterwards.swarm(tmp_path) is None
    assert afterwards.log(tmp_path).lines == []
    assert afterwards.curves(tmp_path, 10).training == []
