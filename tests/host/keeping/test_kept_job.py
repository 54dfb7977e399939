"""A prepared job on the disk: the same again, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from crowdgrad.domain.data import ChunkHash
from crowdgrad.domain.matching import Requirements
from crowdgrad.domain.work import VolunteerId
from crowdgrad.errors import CrowdgradError, DataAltered, DataMalformed, JobFileError
from crowdgrad.files import REAL
from crowdgrad.host.appeal import NO_APPEAL, Appeal
from crowdgrad.host.job import Prepared
from crowdgrad.host.keeping import kept_job
from crowdgrad.store import packed
from tests.integration.conftest import digits, job_with

__all__ = ["digits"]


def kept(folder: Path, prepared: Prepared) -> Prepared:
    kept_job.save(folder, prepared)
    return kept_job.load(folder)


def test_what_was_prepared_is_there_again(tmp_path: Path, digits: Prepared) -> None:
    appeal = Appeal(
        description="Digits,\nfor the paper.",
        contact="me",
        visibility="group",
        invited=(VolunteerId("0123456789abcdef"),),
        requirements=Requirements(cores=2, gpu=True, engines=frozenset({"PyTorch"})),
        admit="anyone",
    )
    digits = replace(digits, appeal=appeal)
    again = kept(tmp_path, digits)
    for name in ("job", "program", "manifest", "blobs", "recipe", "minimum", "maximum", "start",
                 "max_gradient_error", "note", "names", "notes", "classes", "split_seed",
                 "started_from", "earlier", "appeal"):  # fmt: skip
        assert getattr(again, name) == getattr(digits, name), name


def test_a_run_of_before_there_were_appeals_can_be_read(tmp_path: Path, digits: Prepared) -> None:
    kept_job.save(tmp_path, digits)
    found = packed.read(REAL, tmp_path / kept_job.NAME)
    header = msgspec.msgpack.decode(found.header)
    del header["appeal"]
    parts = {name: bytes(part) for name, part in found.parts.items()}
    packed.write(REAL, tmp_path / kept_job.NAME, msgspec.msgpack.encode(header), parts)
    assert kept_job.load(tmp_path).appeal == NO_APPEAL


def test_it_goes_on_for_longer(tmp_path: Path, digits: Prepared) -> None:
    stop = replace(digits.job.stop, target=0.9, minutes=3.0)
    again = kept(tmp_path, job_with(digits, stop=stop))
    state = digits.initial.copy()
    same = kept_job.going_on(again, state, None, only_epochs=False)
    assert same.job == again.job
    assert same.initial is state
    longer = kept_job.going_on(again, state, 77, only_epochs=False).job.stop
    assert longer == replace(stop, epochs=77)
    only = kept_job.going_on(again, state, 77, only_epochs=True).job.stop
    assert (only.epochs, only.target, only.minutes) == (77, None, None)
    with pytest.raises(JobFileError, match="epochs"):
        kept_job.going_on(again, state, 10**9, only_epochs=False)


def test_a_state_of_another_program_is_refused(tmp_path: Path, digits: Prepared) -> None:
    again = kept(tmp_path, digits)
    with pytest.raises(JobFileError, match="the program has"):
        kept_job.going_on(again, np.zeros(3, np.float32), None, only_epochs=False)


def rewritten(folder: Path, prepared: Prepared, *, leave_out: str = "", alter: str = "") -> None:
    """The file with a right checksum over wrong contents."""
    kept_job.save(folder, prepared)
    found = packed.read(REAL, folder / kept_job.NAME)
    parts = {n: bytes(p) + b"x" * (n == alter) for n, p in found.parts.items() if n != leave_out}
    packed.write(REAL, folder / kept_job.NAME, found.header, parts)


def test_blobs_that_are_others_or_missing_are_named(tmp_path: Path, digits: Prepared) -> None:
    chunk = digits.manifest.shards[0].chunks[0].hash
    for name in (digits.job.program, digits.job.manifest, chunk):
        rewritten(tmp_path, digits, alter=name)
        with pytest.raises(DataAltered, match=name[:12]):
            kept_job.load(tmp_path)
        rewritten(tmp_path, digits, leave_out=name)
        with pytest.raises(DataMalformed, match=r"lacks|holds no"):
            kept_job.load(tmp_path)


@pytest.mark.parametrize("header", [b"", b"\x80", b"\xc1", msgspec.msgpack.encode({"job": 3})])
def test_a_header_that_is_none_is_refused(tmp_path: Path, header: bytes) -> None:
    packed.write(REAL, tmp_path / kept_job.NAME, header, {ChunkHash("a" * 64): b"x"})
    with pytest.raises(CrowdgradError):
        kept_job.load(tmp_path)
