"""The process: it takes a port, ends when told, and dies with whoever it is tied to."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import httpx
import pytest

from crowdgrad.errors import SettingError
from crowdgrad.matchmaker.serve import Door, relays_of
from crowdgrad.net.addresses import Proxies
from crowdgrad.net.http import HttpLimits, Tls
from crowdgrad.net.matchmaker import publish, wait_for_job
from crowdgrad.net.ports import bind
from tests.matchmaker.running import Running, key_of, offer, volunteer, worker
from tests.net.certificates import certificate

PROXIED = HttpLimits(proxies=Proxies(["127.0.0.1"]))


async def meet(url: str) -> None:
    """A host and a volunteer find each other."""
    host = await publish(url, offer(), key=key_of("host"), worker=worker())
    match = await wait_for_job(url, volunteer("a"), key=key_of("a"))
    assert match.listing.id == "mnist-1"
    await match.presence.close()
    await host.close()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_politely_with_people_in_it(tmp_path: Path, how: signal.Signals) -> None:
    with Running(tmp_path) as matchmaker:

        async def scenario() -> None:
            host = await publish(matchmaker.url, offer(), key=key_of("host"), worker=worker())
            match = await wait_for_job(matchmaker.url, volunteer("a"), key=key_of("a"))
            out, err = await asyncio.to_thread(matchmaker.stop, how)
            async with asyncio.timeout(20):
                while host.connected or match.presence.connected:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert out == f"The matchmaker listens on {matchmaker.url}\n"
            assert err == "Stopped.\n"
            await match.presence.close()
            await host.close()

        asyncio.run(scenario())
        assert matchmaker.process.returncode == 0
        bind("127.0.0.1", int(matchmaker.url.rpartition(":")[2])).close()


def test_it_ends_with_someone_who_does_not_hang_up(tmp_path: Path) -> None:
    with Running(tmp_path) as matchmaker:
        host, port = matchmaker.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(b"GET /v1/me HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
            silent.settimeout(0.2)
            with pytest.raises(TimeoutError):
                silent.recv(1)
            matchmaker.stop(signal.SIGTERM)
        assert matchmaker.process.returncode == 0


def test_it_dies_with_its_owner(tmp_path: Path) -> None:
    with Running(tmp_path) as matchmaker:
        assert matchmaker.process.stdin is not None
        matchmaker.process.stdin.close()
        assert matchmaker.process.wait(20) == 0


def test_people_meet_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, key = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with Running(tmp_path, "--tls-cert", str(file), "--tls-key", str(key)) as matchmaker:
        assert matchmaker.url.startswith("https://127.0.0.1:")
        asyncio.run(meet(matchmaker.url))
        _, err = matchmaker.stop(signal.SIGTERM)
        assert err == "Stopped.\n"


def test_behind_a_proxy_it_tells_people_the_proxys_name(tmp_path: Path) -> None:
    name = "https://match.example.org"
    arguments = ("--behind-proxy", "127.0.0.1", "--public-url", name, "--host", "0.0.0.0")
    with Running(tmp_path, *arguments) as matchmaker:
        local = matchmaker.url.replace("0.0.0.0", "127.0.0.1")

        async def scenario() -> None:
            host = await publish(local, offer(), key=key_of("host"), worker=worker())
            assert host.link == f"{name}/j/{host.code}"
            await host.close()

        asyncio.run(scenario())


def test_what_happens_is_in_the_log_and_in_the_figures(tmp_path: Path) -> None:
    with Running(tmp_path, "--log", "json") as matchmaker:
        asyncio.run(meet(matchmaker.url))
        figures = httpx.get(f"{matchmaker.url}/metrics", trust_env=False)
        assert figures.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "crowdgrad_matchmaker_joins_total 1\n" in figures.text
        assert "crowdgrad_matchmaker_matches_total 1\n" in figures.text
        assert "crowdgrad_matchmaker_connections_limit" in figures.text
        _, err = matchmaker.stop(signal.SIGTERM)
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines]
    assert events[0] == "started"
    assert events[-1] == "stopped"
    assert {"published", "joined", "matched", "left"} <= set(events)
    assert "127.0.0.1:8710" not in err, "a host's address is told to members only"


def test_it_remembers_in_its_home_folder_unless_told_otherwise(tmp_path: Path) -> None:
    home = tmp_path / "a home of its own"
    with Running(tmp_path, "--home", str(home), database="") as matchmaker:
        code = asyncio.run(_published(matchmaker.url))
        matchmaker.stop(signal.SIGTERM)
        assert (home / "matchmaker.db").exists()
        matchmaker.start()
        shown = httpx.get(f"{matchmaker.url}/v1/jobs/{code}", trust_env=False)
        assert shown.json()["id"] == "mnist-1"


async def _published(url: str) -> str:
    host = await publish(url, offer(), key=key_of("host"), worker=worker())
    await host.close()
    return host.code


@pytest.mark.parametrize(
    ("door", "fine"),
    [
        (Door(), True),
        (Door(host="localhost"), True),
        (Door(host="::1"), True),
        (Door(host="0.0.0.0"), False),
        (Door(host="192.0.2.1"), False),
        (Door(host="0.0.0.0", plain_http=True, public_url="http://192.0.2.7:8700"), True),
        (Door(host="192.0.2.1", plain_http=True), True),
        (Door(host="0.0.0.0", limits=PROXIED, public_url="https://match.example.org"), True),
    ],
)
def test_plain_http_is_for_this_machine_or_told(door: Door, fine: bool) -> None:
    if fine:
        door.check()
        return
    with pytest.raises(SettingError, match="plain HTTP") as error:
        door.check()
    assert "--tls-cert" in error.value.advice
    assert "--behind-proxy" in error.value.advice
    assert "--plain-http" in error.value.advice


@pytest.mark.parametrize(
    "url",
    ["match.example.org", "ftp://x", "https://", "https://x/path", "https://x?q=1", "https://x:99999",
     "https://u:p@x", "https://x y", "https://[x", "https://x\n"],
)  # fmt: skip
def test_an_address_nobody_could_use_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="no address people could be told"):
        Door(public_url=url).check()


def test_who_listens_everywhere_says_where_people_come() -> None:
    with pytest.raises(SettingError, match=r"Listening on 0\.0\.0\.0") as error:
        Door(host="0.0.0.0", plain_http=True).check()
    assert "--public-url" in error.value.advice


def test_behind_a_proxy_one_says_under_which_name() -> None:
    with pytest.raises(SettingError, match="Behind a proxy") as error:
        Door(limits=PROXIED).check()
    assert "--public-url" in error.value.advice


def test_files_for_tls_are_looked_at_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        Door(tls=Tls(certificate=tmp_path / "a", key=tmp_path / "b")).check()


def test_what_people_are_told_and_may_sign_for() -> None:
    plain = Door()
    assert plain.url("127.0.0.1:8700") == "http://127.0.0.1:8700"
    assert plain.names() == {"127.0.0.1"}
    named = Door(public_url="https://match.example.org/")
    assert named.url("127.0.0.1:8700") == "https://match.example.org"
    assert named.names() == {"match.example.org"}
    assert Door(public_url="https://match.example.org:8443").names() == {"match.example.org:8443"}
    assert Door(host="::1").url("[::1]:8700") == "http://[::1]:8700"
    everywhere = Door(host="0.0.0.0", plain_http=True).url("0.0.0.0:8700")
    assert everywhere.endswith(":8700")
    assert "0.0.0.0" not in everywhere


def test_relays_are_named_as_they_are_dialled() -> None:
    named = ["relay.example.org:8702", "wss://match.example.org/relay", "relay:[2001:db8::1]:8702",
             "relay.example.org:8702"]  # fmt: skip
    assert relays_of(named) == (
        "relay:relay.example.org:8702",
        "relay:wss://match.example.org/relay",
        "relay:[2001:db8::1]:8702",
    )
    assert relays_of([]) == ()


@pytest.mark.parametrize(
    "name",
    ["", "relay.example.org", "relay.example.org:0", "http://relay.example.org/x",
     "ws://relay.example.org/x", "relay:", "a b:1", "wss://"],
)  # fmt: skip
def test_what_is_no_relay_is_refused(name: str) -> None:
    with pytest.raises(SettingError) as refused:
        relays_of([name])
    assert "--relay" in refused.value.advice


def test_nobody_is_told_of_too_many_relays() -> None:
    with pytest.raises(SettingError, match="9 relays"):
        relays_of([f"relay.example.org:{port}" for port in range(8700, 8709)])
    with pytest.raises(SettingError):
        relays_of(["relay.example.org:8702", "nonsense"])
