"""Estimates: rescaled without trying again, and taken from the program and its data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.capture.capture import capture
from crowdgrad.host import jobfile
from crowdgrad.host.estimating import NOTHING, of_plan, rescale
from crowdgrad.host.folder_data import fields_of, some_of

KNOWN = replace(
    NOTHING,
    samples=1000,
    step_s=0.03,
    step_fixed_s=0.01,
    step_sample_s=0.002,
    memory_fixed_bytes=500,
    memory_sample_bytes=3,
)


def test_worked_out_by_hand():
    found = rescale(KNOWN, batch_size=100, epochs=2, volunteers=1)
    assert found.steps_per_epoch == 10
    assert found.step_s == pytest.approx(0.21)
    assert found.epoch_s == pytest.approx(5 * 0.21), "ten steps, two at a time"
    assert found.total_s == pytest.approx(10 * 0.21)
    assert found.samples_per_s == pytest.approx(1000 / 1.05)
    assert found.memory_bytes == 800
    assert rescale(replace(KNOWN, minutes=0.01), batch_size=100, epochs=9).total_s == 0.6


COUNTS = st.integers(1, 1000)


@given(COUNTS, COUNTS, st.integers(0, 100), COUNTS)
def test_only_the_last_numbers_count(batch, epochs, volunteers, other):
    there = rescale(KNOWN, batch_size=batch, epochs=epochs, volunteers=volunteers)
    detour = rescale(KNOWN, batch_size=other, epochs=other, volunteers=other % 7)
    assert rescale(detour, batch_size=batch, epochs=epochs, volunteers=volunteers) == there
    more = rescale(KNOWN, batch_size=batch, epochs=epochs, volunteers=volunteers + 1)
    assert more.total_s <= there.total_s, "help never makes it longer"


def test_what_was_not_measured_and_what_is_fixed_stay_so():
    found = rescale(replace(KNOWN, step_s=None), batch_size=10, epochs=1)
    assert (found.step_s, found.total_s, found.steps_per_epoch) == (None, None, 100)
    assert rescale(replace(KNOWN, fixed_batch=50), batch_size=10, epochs=1).steps_per_epoch == 20


def test_of_a_job_file(tmp_path: Path):
    file = tmp_path / "job.toml"
    file.write_text(
        """
        title = "digits"
        data = "digits"
        model = {kind = "mlp", layers = 1, width = 8}
        recipe = {name = "crowd", batch_size = 32}
        stop = {epochs = 4}
        """
    )
    plan = jobfile.read(file, cache=tmp_path)
    some = list(some_of(plan.data, 64))
    captured = capture(plan.task, fields_of(plan.data), None, some, batch_size=32)
    found = of_plan(plan, captured)
    assert found.parameters == 64 * 8 + 8 + 8 * 10 + 10
    assert found.bytes_per_update == 4 * found.parameters
    assert found.samples == 1437 - 143, "a tenth is kept for validation"
    assert found.data_bytes == 65 * found.samples
    assert found.steps_per_epoch == 41
    assert found.epoch_s is not None
    assert found.total_s == pytest.approx(4 * found.epoch_s)
    assert found.memory_bytes > 8 * found.parameters
    assert of_plan(plan, captured, probe=False).total_s is None
