"""What is in `deploy/` for a relay fits the program: every option exists, every file parses."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from crowdgrad.cli.main import parser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = "crowdgrad-relay.service"


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def test_the_options_of_the_container_can_be_parsed() -> None:
    service = yaml.safe_load(text("compose.yaml"))["services"]["relay"]
    assert service["entrypoint"] == ["crowdgrad", "relay"]
    filled = [re.sub(r"\$\{\w+:-(\d+)\}", r"\1", word) for word in service["command"]]
    args = parser().parse_args(["relay", *filled])
    assert (args.host, args.mbit, args.metrics_port) == ("0.0.0.0", 100.0, 9702)
    assert args.metrics_host == "127.0.0.1", "figures are for whoever runs it"
    assert "reverse_proxy /relay relay:8702" in text("Caddyfile")


def test_the_options_of_the_service_can_be_parsed() -> None:
    lines = re.findall(r"RELAY_OPTIONS=(.*)", text("relay.env.example"))
    assert len(lines) == 3
    for line in lines:
        assert parser().parse_args(["relay", *line.split()])


def test_the_options_on_its_page_can_be_parsed() -> None:
    page = (ROOT / "docs/relay.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^    crowdgrad relay(.*?)(?:   .*)?$", page, re.MULTILINE)
    assert len(lines) > 2
    for line in lines:
        assert parser().parse_args(["relay", *line.split()])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_it(tmp_path: Path) -> None:
    # It looks for the program, which is not installed here.
    (tmp_path / UNIT).write_text(text(UNIT).replace("/opt/crowdgrad/bin/crowdgrad", "/bin/sh"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) not in done.stderr, done.stderr


@pytest.mark.parametrize("promise", [
    "DynamicUser=yes", "LimitNOFILE=65536", "NoNewPrivileges=yes", "ProtectSystem=strict",
    "MemoryMax=1G", "EnvironmentFile=/etc/crowdgrad/relay.env", "CapabilityBoundingSet=",
])  # fmt: skip
def test_the_service_may_do_little(promise: str) -> None:
    assert promise in text(UNIT).splitlines()
