"""What is in `deploy/` and on its page fits the program: every option exists, every file parses."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from crowdgrad.cli.main import parser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs/operate.md").read_text(encoding="utf-8")
UNITS = ("crowdgrad-matchmaker.service", "crowdgrad-backup.service", "crowdgrad-backup.timer")


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text("compose.yaml"))
    return found


def _matchmaker() -> argparse.ArgumentParser:
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            found: argparse.ArgumentParser = action.choices["matchmaker"]
            return found
    raise AssertionError("there is no such command")


def _options(of: argparse.ArgumentParser) -> set[str]:
    found = set()
    for action in of._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found |= _options(command)
    return found - {"-h", "--help"}


OPTIONS = _options(_matchmaker())


def command_lines() -> Iterator[str]:
    """Whatever is written anywhere as arguments of `crowdgrad matchmaker`."""
    for name in (path.name for path in DEPLOY.iterdir()):
        for line in text(name).replace("\\\n", " ").splitlines():
            if "MATCHMAKER_OPTIONS=" in line:
                yield line.partition("MATCHMAKER_OPTIONS=")[2]
            yield from re.findall(r"crowdgrad[ -]matchmaker (.*)", line)
    for line in PAGE.replace("\\\n", " ").splitlines():
        yield from re.findall(r"crowdgrad matchmaker ([^`]*)", line)
    yield " ".join(compose()["services"]["matchmaker"]["command"])
    yield " ".join(json.loads(re.findall(r"^CMD (.*)$", text("Dockerfile"), re.MULTILINE)[0]))


def test_every_option_that_is_named_exists() -> None:
    lines = list(command_lines())
    assert len(lines) > 12
    named = {word for line in lines for word in re.findall(r"(?<!\S)--[a-z][a-z-]*", line)}
    assert {"--behind-proxy", "--public-url", "--tls-cert", "--log", "--database"} <= named
    assert named <= OPTIONS, named - OPTIONS


def test_every_option_is_explained() -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    missing = {option for option in OPTIONS - {"--replace"} if f"`{option}`" not in rows}
    assert not missing
    assert "`--replace`" in PAGE


def test_the_arguments_of_the_container_can_be_parsed() -> None:
    words = compose()["services"]["matchmaker"]["command"]
    args = parser().parse_args(["matchmaker", *words])
    assert args.host == "0.0.0.0"
    front = compose()["networks"]["front"]["ipam"]["config"][0]
    caddy = compose()["services"]["caddy"]["networks"]["front"]["ipv4_address"]
    assert args.behind_proxy == [caddy], "and not the gateway, from which strangers come"
    assert ip_address(caddy) in ip_network(front["subnet"])
    assert ip_address(caddy) not in ip_network(front["ip_range"]), "nobody else is given it"
    relay = compose()["services"]["relay"]["command"]
    assert f"--behind-proxy={caddy}" in relay


def test_only_proxy_and_relay_can_be_reached_and_secrets_come_from_outside() -> None:
    services = compose()["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["relay", "caddy"]
    assert compose()["networks"]["back"]["internal"] is True
    assert services["postgres"]["networks"] == ["back"]
    given = "${POSTGRES_PASSWORD:?set POSTGRES_PASSWORD in deploy/.env}"
    assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == given
    url = services["matchmaker"]["environment"]["CROWDGRAD_DATABASE"]
    assert url == f"postgresql://crowdgrad:{given}@postgres/crowdgrad"
    assert "\nPOSTGRES_PASSWORD=\n" in text("compose.env.example")
    assert set(compose()["volumes"]) == {"matchmaker", "postgres", "caddy"}


def test_the_proxy_keeps_the_figures_to_itself() -> None:
    caddy = text("Caddyfile")
    assert "respond /metrics 403" in caddy
    assert "reverse_proxy matchmaker:8700" in caddy
    assert caddy.count("{") == caddy.count("}")
    assert "max_size 64KB" in caddy


def test_the_container_runs_as_nobody_in_particular() -> None:
    lines = text("Dockerfile").splitlines()
    assert "USER crowdgrad" in lines
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
    assert "--constraint constraints.txt" in text("Dockerfile")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text("Dockerfile"), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in text("Dockerfile.dockerignore").splitlines()


def test_every_file_is_on_the_page() -> None:
    for path in DEPLOY.iterdir():
        assert f"`{path.name}`" in PAGE or path.name == "Dockerfile.dockerignore"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_its_files(tmp_path: Path) -> None:
    for name in UNITS:
        # It looks for the program, which is not installed here.
        (tmp_path / name).write_text(text(name).replace("/opt/crowdgrad/bin/crowdgrad", "/bin/sh"))
    for name in UNITS:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert str(tmp_path) not in done.stderr, done.stderr


@pytest.mark.parametrize("promise", [
    "DynamicUser=yes", "StateDirectory=crowdgrad", "LimitNOFILE=65536", "NoNewPrivileges=yes",
    "ProtectSystem=strict", "MemoryMax=2G", "EnvironmentFile=/etc/crowdgrad/matchmaker.env",
    "CapabilityBoundingSet=", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
])  # fmt: skip
def test_the_service_may_do_little(promise: str) -> None:
    assert promise in text("crowdgrad-matchmaker.service").splitlines()
