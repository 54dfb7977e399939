"""Looking at this machine: what is found is true, and nothing is left behind."""

from __future__ import annotations

import ipaddress
import re
import socket
import tomllib
from pathlib import Path

import pytest

from crowdgrad import __version__
from crowdgrad.doctor import measuring
from crowdgrad.net.nearby import Place

ROOT = Path(__file__).parents[2]


def test_versions_are_those_that_are_installed() -> None:
    found = measuring.versions()
    assert found.crowdgrad == __version__
    assert all(found.lending.values())
    assert set(found.lending) == set(measuring.LENDING)
    assert measuring._version("no-such-library-of-anybody") == ""


NOT_LOOKED_FOR = {
    "uvloop": "what does without it is only slower",
    "crowdgrad": "the extra `matchmaker`: neither for lending nor for hosting",
    "matplotlib": "for examples only",
}


def test_the_libraries_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        found = {re.split(r"[^A-Za-z0-9-]", one)[0] for one in requirements}
        return found - set(NOT_LOOKED_FOR)

    assert names(project["dependencies"]) == set(measuring.LENDING)
    assert names(project["optional-dependencies"]["host"]) == set(measuring.HOSTING)
    source = "".join(file.read_text("utf-8") for file in (ROOT / "crowdgrad").rglob("*.py"))
    assert not re.search(r"^\s*(import|from) matplotlib\b", source, re.MULTILINE)


def test_a_folder_that_is_not_there_yet_is_judged_by_where_it_would_be(tmp_path: Path) -> None:
    found = measuring.disk("results", tmp_path / "not" / "yet")
    assert found.free_bytes > 0
    assert found.trouble == ""
    assert list(tmp_path.iterdir()) == [], "nothing stays, not even the folder"


def test_a_folder_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = measuring.disk("results", tmp_path / "file")
    assert found.trouble == "not a directory"


def test_a_port_where_somebody_listens_cannot_be_had() -> None:
    with socket.create_server(("0.0.0.0", 0)) as somebody:
        port = somebody.getsockname()[1]
        assert measuring.can_be_had(port) == (False, "")
    assert measuring.can_be_had(0) == (True, "")


def test_a_port_that_the_system_keeps_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, where: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert measuring.can_be_had(80) == (False, "permission denied")


def test_our_addresses_are_addresses() -> None:
    for address in measuring.local_addresses():
        ipaddress.ip_address(address)


def test_without_a_way_out_our_addresses_are_those_on_our_networks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: socket.socket, where: object) -> None:
        raise OSError(101, "Network is unreachable")

    def classroom() -> tuple[Place, ...]:
        addresses = ("fe80::2", "fd00::2", "10.0.0.2")
        return tuple(Place(address=one, prefix=24, interface=2) for one in addresses)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert measuring.local_addresses(here=classroom) == ("10.0.0.2", "fd00::2")
    assert measuring.local_addresses(here=tuple) == ()
