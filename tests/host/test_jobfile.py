"""What a job file says to those who might help: read, checked, each mistake named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crowdgrad.domain.matching import Requirements
from crowdgrad.errors import JobFileError
from crowdgrad.host.appeal import BARE, NO_APPEAL, Appeal
from crowdgrad.host.job import JobPlan
from crowdgrad.host.jobfile import REQUIREMENT_KEYS, read

DOCS = Path(__file__).parents[2] / "docs"
TASK = 'task = "crowdgrad.capture.models:digits_mlp"\ndata = "mine.npz"\n'
ADA, BEN = "0123456789abcdef", "fedcba9876543210"


def plan(folder: Path, text: str) -> JobPlan:
    np.savez(folder / "mine.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.zeros(20, np.int64))
    (folder / "job.toml").write_text(TASK + text)
    return read(folder / "job.toml", cache=folder)


def test_nothing_said_is_for_everybody(tmp_path: Path) -> None:
    assert plan(tmp_path, "").appeal == NO_APPEAL


def test_everything_said(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        f"""
        description = '''Digits,
        for the paper.'''
        contact = "digits@example.org"
        [volunteers]
        visibility = "group"
        invited = ["{ADA}", "{BEN}"]
        admit = "anyone"
        [requirements]
        cores = 2
        memory_mb = 4000
        gpu = true
        gpu_memory_mb = 8000
        gflops = 10
        download_mbps = 2.5
        engines = ["PyTorch"]
        kinds = ["native", "browser"]
        """,
    ).appeal
    assert found == Appeal(
        description="Digits,\n        for the paper.",
        contact="digits@example.org",
        visibility="group",
        invited=(ADA, BEN),
        admit="anyone",
        requirements=Requirements(
            cores=2,
            memory_mb=4000,
            gpu=True,
            gpu_memory_mb=8000,
            gflops=10.0,
            download_mbps=2.5,
            engines=frozenset({"PyTorch"}),
            kinds=frozenset({"native", "browser"}),
        ),
    )
    offer = found.put_into(BARE, data_mb=12)
    assert offer.requirements.data_mb == 12
    assert offer.invited == {ADA, BEN}
    assert (offer.visibility, offer.contact) == ("group", "digits@example.org")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("description = 5", "'description' of"),
        (f'description = "{"x" * 2001}"', "at most 2000"),
        ('description = "a\\u001bb"', "printable"),
        ('contact = "a\\nb"', "a contact has"),
        (f'contact = "{"x" * 121}"', "a contact has"),
        ('[volunteers]\nvisibility = "secret"', "visibility is 'secret'"),
        ("[volunteers]\nvisibility = true", "'visibility' of"),
        ('[volunteers]\nvisibility = "group"', "nobody is invited"),
        (f'[volunteers]\ninvited = ["{ADA}"]', "set its visibility to group"),
        ('[volunteers]\nvisibility = "group"\ninvited = ["ada"]', "invited names 'ada'"),
        ('[volunteers]\nvisibility = "group"\ninvited = "ada"', "'invited' of"),
        ('[volunteers]\nvisibility = "group"\ninvited = [5]', "'invited' of"),
        ('[volunteers]\nadmit = "friends"', "admit is 'friends'"),
        ("requirements = 5", "'requirements' of"),
        ("[requirements]\ndata_mb = 5", "unknown key 'data_mb'"),
        ("[requirements]\ncolour = 5", "unknown key 'colour'"),
        ("[requirements]\ncores = 0", "0 cores"),
        ("[requirements]\ncores = 65537", "65537 cores"),
        ("[requirements]\ncores = 1.5", "'cores' of"),
        ("[requirements]\nmemory_mb = -1", "'memory_mb' of"),
        ("[requirements]\nmemory_mb = 1000000000000", "between 0 and"),
        ("[requirements]\ngpu = 1", "'gpu' of"),
        ('[requirements]\ngpu_memory_mb = "8"', "'gpu_memory_mb' of"),
        ("[requirements]\ngflops = -0.5", "'gflops' of"),
        ("[requirements]\ngflops = inf", "'gflops' of"),
        ("[requirements]\ngflops = true", "'gflops' of"),
        ("[requirements]\ndownload_mbps = nan", "'download_mbps' of"),
        ('[requirements]\nengines = "PyTorch"', "'engines' of"),
        (f"[requirements]\nengines = {[str(n) for n in range(9)]}", "at most 8 engines"),
        ('[requirements]\nkinds = ["robot"]', "native or browser"),
    ],
)
def test_every_mistake_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(JobFileError, match=what) as refused:
        plan(tmp_path, text)
    assert refused.value.advice


@pytest.mark.parametrize("key", REQUIREMENT_KEYS)
def test_every_requirement_is_documented(key: str) -> None:
    assert f"| `{key}` |" in (DOCS / "job-files.md").read_text(encoding="utf-8")


READY = 'data = "mine.npz"\nseed = 4\n'


def ready_plan(folder: Path, text: str) -> JobPlan:
    np.savez(folder / "mine.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 3)
    (folder / "job.toml").write_text(READY + text)
    return read(folder / "job.toml", cache=folder)


def test_a_ready_made_model_instead_of_a_task(tmp_path: Path) -> None:
    found = ready_plan(tmp_path, '[model]\nkind = "cnn"\nblocks = 1\nchannels = 8')
    assert found.task.model(found.task.inputs[0]).shape[1] == 3, "as many as the data has"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "neither 'task' nor"),
        ('task = "a:b"\n[model]\nkind = "mlp"', r"a 'task' and a \[model\]"),
        ('model = "mlp"', "'model' of"),
        ("[model]\nwidth = 8", "has no kind"),
        ('[model]\nkind = "mlp"\ncolour = 3', "'colour'"),
        ('[model]\nkind = "mlp"\nwidth = 7', "'width' of"),
    ],
)
def test_every_mistake_of_a_model_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(JobFileError, match=what) as refused:
        ready_plan(tmp_path, text)
    assert refused.value.advice
