"""What a finished run is turned into."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from crowdgrad.capture import inference
from crowdgrad.host.folder import RunFolder
from crowdgrad.host.results import write_results
from crowdgrad.host.telling.swarm_status import SwarmStatus
from crowdgrad.host.telling.swarm_taking import take_swarm
from tests.host import small, swarms
from tests.host.telling.test_report import history, prepared, status


@pytest.mark.parametrize("passed_on", [True, False])
def test_how_the_data_spread_is_kept(
    passed_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The small program has no graph: what is written of it is tested with real ones.
    monkeypatch.setattr(inference, "onnx_model_with_weights", lambda program, state: b"")
    played = swarms.play(4, 40, leaves=[2])
    swarm = take_swarm(played, swarms.names(4), played.now) if passed_on else None
    folder = RunFolder(tmp_path / "run")
    state = np.zeros(small.SIZE, np.float32)
    write_results(folder, prepared("Digits"), status("ada"), state, history(1.0), swarm=swarm)
    folder.close()
    kept = folder.path / "swarm.json"
    assert kept.exists() is passed_on
    assert ("How the data spread" in (folder.path / "report.html").read_text()) is passed_on
    if passed_on:
        assert msgspec.json.decode(kept.read_bytes(), type=SwarmStatus) == swarm
