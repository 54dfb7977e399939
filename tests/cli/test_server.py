"""`crowdgrad server`: whom it obeys must be said, and where it listens is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdgrad.cli.main import main
from crowdgrad.process import Child, end_all
from crowdgrad.settings import SERVER_SECRET_VARIABLE


def test_without_a_secret_it_obeys_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "--home", str(tmp_path)]) == 1
    assert "[CG104] Whom is this server to obey?" in capsys.readouterr().err


def test_a_setting_may_name_the_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "settings.toml").write_text(f'secret_file = "{tmp_path / "none"}"')
    assert main(["server", "--home", str(tmp_path)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_secret_that_a_host_gives_must_be_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SERVER_SECRET_VARIABLE, "short")
    assert main(["server", "--home", str(tmp_path)]) == 1
    assert "has 5 bytes" in capsys.readouterr().err


def test_servers_elsewhere_need_a_secret_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.toml"
    job.write_text("")
    said = main(["host", str(job), "--server", "a:1", "--home", str(tmp_path), "--no-supervise"])
    assert said == 1
    assert "--secret-file" in capsys.readouterr().err


def test_it_says_where_it_listens_and_ends_when_asked(tmp_path: Path) -> None:
    secret, told = tmp_path / "secret", tmp_path / "told.json"
    secret.write_text("0123456789abcdef")
    child = Child(
        ["server", "--port", "0", "--secret-file", str(secret), "--json", str(told)],
        log=tmp_path / "log",
    )
    try:
        while not told.exists():
            assert child.code is None, child.last_words()
        assert json.loads(told.read_text())["address"].startswith("127.0.0.1:")
        child.ask_to_stop()
        assert child.wait(20.0)
        assert child.code == 0
        assert "Stopped." in child.last_words()
    finally:
        end_all([child])
