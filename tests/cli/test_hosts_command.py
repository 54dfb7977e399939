"""`crowdgrad hosts` and `crowdgrad log`: what they change, and what they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crowdgrad.cli.main import main
from crowdgrad.volunteer.hosts import KnownHosts, Refusals
from crowdgrad.volunteer.journal import Journal

KEY, OTHER = "0123456789abcdef", "f" * 16
PROGRAM = "ab" * 32


def run(home: Path, *arguments: str) -> int:
    return main([*arguments, "--home", str(home)])


def test_hosts_are_trusted_blocked_listed_and_forgotten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "hosts") == 0
    assert "No hosts are on the list" in capsys.readouterr().out
    assert run(tmp_path, "hosts", "trust", KEY.upper()) == 0
    assert run(tmp_path, "hosts", "block", OTHER) == 0
    assert {host.key: host.status for host in KnownHosts(tmp_path).all()} == {
        KEY: "trusted", OTHER: "blocked",
    }  # fmt: skip
    capsys.readouterr()
    assert run(tmp_path, "hosts") == 0
    shown = capsys.readouterr().out
    assert f"{KEY}  trusted" in shown
    assert f"{OTHER}  blocked" in shown
    assert run(tmp_path, "hosts", "forget", OTHER) == 0
    assert run(tmp_path, "hosts", "forget", OTHER) == 1
    assert "[CG105] ffffffffffffffff is on no list" in capsys.readouterr().err
    assert run(tmp_path, "hosts", "trust", "Ada") == 1
    assert "[CG105] 'Ada' is not a host's key" in capsys.readouterr().err


def test_refused_jobs_and_hosts_of_the_setting_are_listed_and_jobs_forgiven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Refusals(tmp_path).add(PROGRAM, "Digits", "its trainer died", 1.7e9)
    KnownHosts(tmp_path).set(KEY, "agreed", name="Ada's lab", now=1.7e9)
    monkeypatch.setenv("CROWDGRAD_TRUSTED_HOSTS", OTHER)
    assert run(tmp_path, "hosts", "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["hosts"][0]["name"] == "Ada's lab"
    assert told["refused"][0]["program"] == PROGRAM
    assert told["trusted_hosts"] == [OTHER]
    assert run(tmp_path, "hosts") == 0
    shown = capsys.readouterr().out
    assert "Ada's lab" in shown
    assert "“Digits”: its trainer died" in shown
    assert f"trusted_hosts: {OTHER}" in shown
    assert run(tmp_path, "hosts", "forgive", PROGRAM[:12]) == 0
    assert Refusals(tmp_path).all() == []
    assert run(tmp_path, "hosts", "forgive", "Digits") == 1
    assert "No refused job" in capsys.readouterr().err


def test_the_log_is_for_people_and_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "log") == 0
    assert "Nothing has been done here yet" in capsys.readouterr().out
    journal = Journal(tmp_path, lambda: 1.7e9)
    journal.host = KEY
    for number in range(50):
        journal.write("note", f"Line {number}.", {"n": number})
    assert run(tmp_path, "log", "--lines", "2") == 0
    first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert first[0].startswith("2023-11-1")
    assert first[2:] == [KEY, "note", "Line", "48."]
    assert second[2:] == [KEY, "note", "Line", "49."]
    assert run(tmp_path, "log", "--json", "-") == 0
    told = json.loads(capsys.readouterr().out)["entries"]
    assert len(told) == 40
    assert told[-1]["data"] == {"n": 49}
    assert run(tmp_path, "log", "--lines", "0") == 0
    assert capsys.readouterr().out == ""


def test_the_log_can_be_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, lambda: 1.7e9)
    journal.write("note", "before")
    told = ["and then", "Ctrl-C"]

    def meanwhile(seconds: float) -> None:
        journal.write("note", told.pop(0))
        if not told:
            raise KeyboardInterrupt

    monkeypatch.setattr("crowdgrad.cli.log.time.sleep", meanwhile)
    assert run(tmp_path, "log", "--follow") == 130
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("note")[1].strip() for line in shown] == ["before", "and then"]
