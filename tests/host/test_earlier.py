"""Runs that are over, as later ones find them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdgrad.errors import DataMalformed, DataMissing, JobFileError
from crowdgrad.host.earlier import find_run, read_run

RECORDS = {"train": 90, "validation": 10, "test": 0}


def a_run(folder: Path, *, model: bool = True, **told: object) -> Path:
    folder.mkdir(parents=True)
    content = {"id": folder.name, "title": "Digits", "seed": 5, "data": {"records": RECORDS}}
    (folder / "job.json").write_text(json.dumps({**content, **told}))
    if model:
        (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_it_is_found_by_its_folder_or_its_id(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "runs" / "digits-1")
    assert find_run("digits-1", tmp_path / "runs") == folder
    assert find_run(str(folder), tmp_path / "elsewhere") == folder
    with pytest.raises(DataMissing, match="no run digits-2") as caught:
        find_run("digits-2", tmp_path / "runs")
    assert "digits-1" in caught.value.advice


def test_the_last_is_the_one_begun_last(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(DataMissing, match="no run last"):
        find_run("last", runs)
    newer = a_run(runs / "20250102-000000-digits-0000")
    a_run(runs / "20250101-000000-digits-ffff")
    assert find_run("last", runs) == newer
    called_so = a_run(runs / "last")
    assert find_run("last", runs) == called_so, "a run's own name comes first"


def test_every_run_that_continues_it_has_its_own_seed_and_the_same_splits(tmp_path: Path) -> None:
    first = read_run(a_run(tmp_path / "first"))
    assert first.next_seed() == 5 + (1 << 32)
    told = {"seed": first.next_seed(), "split_seed": 5, "continued": 1}
    second = read_run(a_run(tmp_path / "second", **told))
    assert second.next_seed() == 5 + (2 << 32)
    second.check(seed=5, records=RECORDS)
    last = read_run(a_run(tmp_path / "last", seed=0, split_seed=(1 << 64) - 1))
    assert 0 <= last.next_seed() < 1 << 64


def test_other_splits_are_refused(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path / "first"))
    with pytest.raises(JobFileError, match="split with the seed 5, this job with 6"):
        run.check(seed=6, records=RECORDS)
    with pytest.raises(JobFileError, match="90 train, 10 validation"):
        run.check(seed=5, records={**RECORDS, "validation": 20})


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="is not a run"):
        read_run(tmp_path)
    with pytest.raises(DataMissing, match=r"no model yet \(it is running\)"):
        read_run(a_run(tmp_path / "on", model=False, state="running"))
    with pytest.raises(DataMalformed, match=r"job\.json cannot be read"):
        read_run(a_run(tmp_path / "odd", data=3))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "job.json").write_text("{")
    with pytest.raises(DataMalformed):
        read_run(tmp_path / "broken")
