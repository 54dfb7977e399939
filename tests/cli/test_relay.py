"""`crowdgrad relay`: says where it listens, ends when asked, refuses limits that make no sense."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

import pytest

from crowdgrad.cli.main import main, parser
from crowdgrad.cli.relay import _door, line
from crowdgrad.planner.relaying import Limits
from tests.relay.running import Running
from tests.relay.world import Host, call, relay, run


def test_it_says_where_it_listens_and_tells_its_figures(tmp_path: Path) -> None:
    with Running(tmp_path, "--metrics-port", "0") as running:
        assert str(running.said["address"]).startswith("127.0.0.1:")
        with urllib.request.urlopen(f"http://{running.said['metrics']}/healthz", timeout=20) as got:
            assert b'"status": "ok"' in got.read()
        out, err = running.stop(signal.SIGTERM)
        assert f"The relay listens on {running.said['address']}" in out
        assert f"http://{running.said['metrics']}/metrics" in out
        assert "Stopped." in err
        assert running.process.returncode == 0


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        _, err = running.process.communicate(timeout=20)  # closes its standard input
        assert running.process.returncode == 0
        assert "Stopped." in err


def test_refusals_are_told_line_by_line(tmp_path: Path) -> None:
    async def refused(running: Running) -> None:
        caller = await call(running)  # type: ignore[arg-type]
        await caller.refused("unknown-host")

    with Running(tmp_path) as running:
        run(refused(running))
        _, err = running.stop(signal.SIGINT)
        assert "refused reason=unknown-host key=" in err


@pytest.mark.parametrize("arguments", [
    ["--max-pairs", "0"], ["--key-mbit", "-1"], ["--idle-s", "0"], ["--key-gb-per-day", "nan"],
    ["--port", "70000"], ["--behind-proxy", "nowhere"],
], ids=" ".join)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["relay", "--home", str(tmp_path), *arguments]) == 1
    assert "[CG104]" in capsys.readouterr().err


def test_a_fingerprint_must_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["relay", "--allow", "abc"])
    assert "no fingerprint" in capsys.readouterr().err


def test_every_limit_can_be_set() -> None:
    args = parser().parse_args([
        "relay", "--max-hosts", "1", "--max-pairs", "2", "--pairs-per-host", "3",
        "--pairs-per-key", "4", "--pairs-per-address", "5", "--hosts-per-address", "6",
        "--arrivals-per-s", "7", "--mbit", "8", "--key-mbit", "16", "--key-gb-per-day", "0.5",
        "--measure-mb", "2", "--idle-s", "9", "--name", "a", "--name", "b:1", "--allow", "A1" * 8,
    ])  # fmt: skip
    rules = _door(args).rules
    assert rules.limits == Limits(
        hosts=1, pairs=2, pairs_per_host=3, pairs_per_caller=4, pairs_per_address=5,
        hosts_per_address=6, arrivals_per_s=7.0, bytes_per_s=1_000_000, key_bytes_per_s=2_000_000,
        key_bytes_per_day=500_000_000, measure_bytes=2_000_000, idle_s=9.0,
    )  # fmt: skip
    assert (rules.names, rules.allowed) == (("a", "b:1"), ("a1" * 8,))
    assert _door(parser().parse_args(["relay"])).rules.limits == Limits()


def test_the_line_of_a_terminal_says_what_is_going_on() -> None:
    async def shown() -> None:
        async with relay() as running:
            assert line(running, 0.0) == "0 hosts, 0 pairs, 0.0 MB/s"
            host = await Host.serve(running)
            await (await call(running, host="b" * 16)).refused("unknown-host")
            assert line(running, 1.26e6) == "1 host, 0 pairs, 1.3 MB/s, 1 refusal"
            host.close()

    run(shown())
