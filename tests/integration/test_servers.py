"""Parameter servers as processes of their own: they train, and one that is killed comes back."""

from __future__ import annotations

import json
import os
import secrets
import signal
from pathlib import Path

import pytest

from crowdgrad.process import Child, end_all
from tests.integration.conftest import children_of
from tests.integration.test_survival import JOB, Host, incarnation, lines_of


def servers_of(pid: int) -> list[int]:
    """The parameter servers a host has started."""
    return [child for child in children_of(pid) if b"\0server\0" in _command(child)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def job_file(folder: Path, recipe: str = "") -> Path:
    file = folder / "job.toml"
    file.write_text(JOB.replace("[stop]", f"{recipe}\n[stop]"))
    return file


def falling(host: Host) -> None:
    """It learns: the validation loss, which began with ln 10, falls below 1."""

    def learned() -> bool:
        lines = lines_of(host.run)
        return any(line["kind"] == "validate" and line["loss"] < 1.0 for line in lines)

    host.until("it learns", learned)


@pytest.mark.slow  # test_codecs.py trains with servers, always
def test_a_server_that_is_killed_is_begun_again_and_training_goes_on(tmp_path: Path) -> None:
    with Host(tmp_path) as host:
        host.start(str(job_file(tmp_path)), "--servers", "2")
        host.volunteer("ada")
        host.until("ada helps", lambda: host.units_of("ada") > 20)
        host.train_on(100)
        before = host.status()
        assert incarnation(before["version"]) == 0
        one, two = servers_of(int(host.here["pid"]))
        os.kill(two, signal.SIGKILL)
        host.until("it goes back", lambda: incarnation(host.status()["version"]) == 1)
        enough = host.updates() + 200
        host.until("it goes on", lambda: host.updates() > enough)
        ada = host.units_of("ada")
        host.until("ada goes on", lambda: host.units_of("ada") > ada + 20)
        told = host.status()
        assert "was lost" in told["notice"]
        assert told["setbacks"] == 0  # so the learning rate is what it was
        assert one in servers_of(int(host.here["pid"]))
        assert all(member["refused"] == 0 for member in told["members"])
        falling(host)
        host.child.ask_to_stop()  # type: ignore[union-attr]
        assert host.child.wait(20.0)  # type: ignore[union-attr]


@pytest.mark.slow
def test_servers_elsewhere_and_a_run_that_goes_on_without_them(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(32))
    servers = [
        Child(
            ["server", "--port", "0", "--secret-file", str(secret),
             "--json", str(tmp_path / f"server-{n}.json")],
            log=tmp_path / f"server-{n}.log",
        )
        for n in range(2)
    ]  # fmt: skip
    with Host(tmp_path) as host:
        try:
            host.child = servers[0]
            host.until("they listen", lambda: len(list(tmp_path.glob("server-*.json"))) == 2)
            told = [json.loads((tmp_path / f"server-{n}.json").read_text()) for n in range(2)]
            where = [word for told_ in told for word in ("--server", told_["address"])]
            job = job_file(tmp_path, 'rule = "adam"')
            host.start(str(job), *where, "--secret-file", str(secret))
            host.train_on(150)
            host.kill()
            host.resume("--servers", "0", "--epochs", "100000")
            assert servers_of(int(host.here["pid"])) == []
            host.train_on(100)
            falling(host)
        finally:
            end_all(servers)
