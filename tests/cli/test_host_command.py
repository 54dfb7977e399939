"""`crowdgrad host`: which job it reads, and what it says before it starts."""

from __future__ import annotations

import io
import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from crowdgrad.cli import host
from crowdgrad.cli.display import qr_code
from crowdgrad.cli.host_arguments import options_of
from crowdgrad.cli.host_display import announce, greet, introduce
from crowdgrad.cli.main import parser
from crowdgrad.errors import DataMissing, SettingError, TargetError, Unreachable
from crowdgrad.host.earlier import read_run
from crowdgrad.host.keeping.resume import Serving
from crowdgrad.host.options import Here
from crowdgrad.settings import Settings
from tests.host.telling.test_report import prepared
from tests.host.test_earlier import a_run

JOB = """
task = "crowdgrad.capture.models:digits_mlp"
data = "mine.npz"
weights = "trained.safetensors"
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.zeros(20, np.int64))
    (tmp_path / "job.toml").write_text(JOB)
    return str(tmp_path / "job.toml")


def test_weights_lie_beside_the_job_file(job: str, tmp_path: Path) -> None:
    plan = host.read_plan(job, tmp_path)
    assert plan.weights == tmp_path / "trained.safetensors"
    assert plan.continue_from is None


def test_a_run_to_continue_takes_the_place_of_the_weights(job: str, tmp_path: Path) -> None:
    folder = a_run(tmp_path / "runs" / "digits-1")
    asked = ["host", job, "--runs", str(tmp_path / "runs"), "--continue"]
    plan = host._plan(parser().parse_args([*asked, "digits-1"]), tmp_path)
    assert (plan.continue_from, plan.weights) == (folder, None)
    with pytest.raises(DataMissing, match="no run digits-2"):
        host._plan(parser().parse_args([*asked, "digits-2"]), tmp_path)


def test_what_should_be_known_is_said_first(tmp_path: Path) -> None:
    run = read_run(a_run(tmp_path / "digits-1"))
    console = Console(width=100)
    with console.capture() as shown:
        notes = ("5 of 9 test records are left out.", "[/b] is no markup.")
        introduce(console, replace(prepared("Digits"), notes=notes, earlier=run))
    text = shown.get()
    for said in (
        "Data: small (a note)",
        "Starts from the result of digits-1",
        f"Note: {notes[0]}",
        "[/b]",
    ):
        assert said in text


HERE = Here(
    address="192.0.2.7:8701",
    routes=("192.0.2.7:8701", "relay:192.0.2.9:8702"),
    words="others reach this machine at 192.0.2.7:8701",
    url="http://127.0.0.1:8702",
    folder=Path("runs/digits-1"),
    code="K7Q-2MP",
    key="0123456789abcdef",
    link="https://match.example.org/j/K7Q-2MP",
    admit="introduced",
)


def greeted(here: Here, *, terminal: bool = False, width: int = 100, qr: bool = False) -> str:
    console = Console(width=width, force_terminal=terminal, color_system=None, file=io.StringIO())
    with console.capture() as shown:
        greet(console, here, "https://match.example.org", qr=qr)
    return shown.get()


def test_people_are_given_the_code_and_the_link() -> None:
    text = greeted(HERE)
    assert "crowdgrad work K7Q-2MP --matchmaker https://match.example.org" in text
    assert f"  {HERE.link}\n" in text
    assert "█" not in text
    assert f"work {HERE.address}" not in text, "who comes with that is turned away"
    assert "Others reach this machine at 192.0.2.7:8701." in text
    assert f"crowdgrad work {HERE.address}" in greeted(replace(HERE, admit="anyone"))
    alone = greeted(replace(HERE, code=None, link="", admit="anyone"), terminal=True, qr=True)
    assert f"crowdgrad work {HERE.address}" in alone
    assert "█" not in alone


def test_a_terminal_shows_the_link_as_a_picture_and_a_log_if_it_is_asked_to() -> None:
    drawn = qr_code(HERE.link).plain
    for how in ({"terminal": True}, {"qr": True}, {"qr": True, "width": 10}):
        assert drawn in greeted(HERE, **how)  # type: ignore[arg-type]
    assert "█" not in greeted(HERE, terminal=True, width=20), "half a picture is none"


def test_where_it_is_found_is_announced(tmp_path: Path) -> None:
    announce(str(tmp_path / "a.json"), HERE)
    told = json.loads((tmp_path / "a.json").read_text())
    assert set(told) == {
        "address", "url", "run", "folder", "code", "link", "key", "page", "title", "token", "pid",
    }  # fmt: skip
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600, "it holds a token"
    assert told["link"] == HERE.link


BEFORE = Serving(
    host="127.0.0.1", port=1, matchmaker="http://m", matchmaker_key="ab" * 32, admit="anyone"
)


@pytest.mark.parametrize(
    ("words", "key", "admit"),
    [
        ([], bytes.fromhex("ab" * 32), "anyone"),
        (["--admit", "introduced"], bytes.fromhex("ab" * 32), "introduced"),
        (["--matchmaker", "http://m"], bytes.fromhex("ab" * 32), "anyone"),
        (["--matchmaker", "http://another"], b"", "anyone"),
    ],
)
def test_a_run_goes_on_with_the_matchmaker_it_knew(
    words: list[str], key: bytes, admit: str
) -> None:
    options = options_of(parser().parse_args(["host", "--resume", "last", *words]), BEFORE)
    assert (options.matchmaker_key, options.admit) == (key, admit)
    first = options_of(parser().parse_args(["host", "job.toml", *words]), None)
    assert first.matchmaker_key == b""


@pytest.mark.parametrize(
    ("words", "place", "any_port"),
    [
        ([], ("127.0.0.1", 8080), True),
        (["--page", "127.0.0.1:0"], ("127.0.0.1", 8080), True),  # the same words, after a kill
        (["--page", "127.0.0.1:9090"], ("127.0.0.1", 9090), False),
        (["--page", "127.0.0.2:0"], ("127.0.0.2", 0), True),
    ],
)
def test_a_run_goes_on_with_its_page_where_it_was(
    words: list[str], place: tuple[str, int], any_port: bool
) -> None:
    args = parser().parse_args(["host", "--resume", "last", *words])
    options = options_of(args, replace(BEFORE, page=("127.0.0.1", 8080)))
    assert (options.page, options.any_page_port) == (place, any_port)
    assert options_of(args, BEFORE).page == args.page


def test_that_nobody_could_introduce_anyone_is_said_before_the_model_is_looked_at(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crowdgrad.host.job.prepare", lambda *what: pytest.fail("too late"))
    args = parser().parse_args(["host", job, "--admit", "introduced"])
    options = options_of(args, None)
    with pytest.raises(SettingError, match="no matchmaker introduces any"):
        host._prepare(args, options, Settings(home=tmp_path), Console(quiet=True))


def test_that_no_matchmaker_is_there_is_said_before_the_model_is_looked_at(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crowdgrad.host.job.prepare", lambda *what: pytest.fail("too late"))
    for url, error in (("http://127.0.0.1:1", Unreachable), ("no sense", TargetError)):
        args = parser().parse_args(["host", job, "--matchmaker", url, "--yes"])
        with pytest.raises(error):
            host._prepare(
                args, options_of(args, None), Settings(home=tmp_path), Console(quiet=True)
            )
