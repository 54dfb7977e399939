"""What `crowdgrad host` shows to pass on: only what can be used, whole, and a picture that fits."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from crowdgrad.cli.display import qr_code
from crowdgrad.cli.joining import Ways, show
from crowdgrad.domain.codes import local_code
from crowdgrad.domain.routes import route_of
from crowdgrad.net import links
from crowdgrad.net.identity import guest
from crowdgrad.volunteer.target import read

KEY = guest("joining")
PAGE = links.of_matchmaker("https://match.example.org/j/K7Q-2MP", KEY.public)
ROUTES = [route_of("192.0.2.7:8701"), route_of("relay:relay.example.org:8702")]
DIRECT = links.of_routes(ROUTES, KEY.public, "20260101-120000-digits-ab12")
WAYS = Ways(
    code="K7Q-2MP",
    matchmaker="https://match.example.org",
    local_code=local_code(KEY.public),
    addresses=("192.0.2.7:8701", "[2001:db8::7]:8701"),
    link=PAGE,
    key=KEY.id,
)


def shown(ways: Ways, *, terminal: bool = False, width: int = 80, qr: bool = False) -> str:
    console = Console(width=width, force_terminal=terminal, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        show(console, ways, qr=qr)
    return captured.get()


def commands(text: str) -> list[list[str]]:
    """What a shell would make of each command that is shown."""
    lines = [line[line.index("crowdgrad work ") :] for line in text.splitlines()
             if "crowdgrad work " in line]  # fmt: skip
    return [shlex.split(line)[2:] for line in lines]


def test_every_way_is_shown_and_each_names_the_key() -> None:
    text = shown(WAYS)
    assert f"  {PAGE}\n" in text
    assert KEY.id in text
    targets = [read(words[0]) for words in commands(text)]
    assert [(one.job, one.local_code) for one in targets[:2]] == [
        ("K7Q-2MP", ""), (None, local_code(KEY.public)),
    ]  # fmt: skip
    addresses = map(route_of, WAYS.addresses)
    assert [(one.routes, one.key) for one in targets[2:]] == [((r,), KEY.id) for r in addresses]
    assert commands(text)[0][1:] == ["--matchmaker", "https://match.example.org"]


@pytest.mark.parametrize("width", [20, 80, 120])
def test_a_link_for_no_browser_is_shown_as_a_command_a_shell_understands(width: int) -> None:
    (words,) = commands(shown(Ways(link=DIRECT), width=width))
    assert words == [DIRECT]
    assert read(words[0]).routes == tuple(ROUTES)


def test_what_cannot_be_used_is_not_mentioned() -> None:
    assert shown(Ways()) == ""
    text = shown(Ways(local_code=WAYS.local_code, key=KEY.id), terminal=True, qr=True)
    assert text.splitlines() == [
        "Others can join with:",
        f"  on this network  crowdgrad work {WAYS.local_code}",
        f"They are shown your key's fingerprint: {KEY.id}",
    ]


@pytest.mark.parametrize("link", [PAGE, DIRECT])
def test_a_terminal_of_80_columns_shows_the_link_as_a_picture(link: str) -> None:
    ways = replace(WAYS, link=link)
    picture = qr_code(link).plain
    assert picture in shown(ways, terminal=True)
    assert picture in shown(ways, qr=True), "in a log, if it is asked for"
    assert "█" not in shown(ways)
    assert "█" not in shown(ways, terminal=True, width=picture.index("\n") - 1), "half is none"


def test_where_nobody_else_can_come_nobody_else_is_asked_to() -> None:
    here = Ways(addresses=("127.0.0.1:8701",), link=DIRECT, key=KEY.id)
    text = shown(here, terminal=True)
    assert text.startswith("Only this machine can join with:")
    assert commands(text) == [[f"127.0.0.1:8701#{KEY.id}"]]
    assert DIRECT not in text
    assert "▄" not in text, "no picture of a link that leads nowhere"
    assert shown(replace(here, addresses=("192.0.2.7:8701", "127.0.0.1:8701"))).startswith("Others")
    assert shown(replace(here, code="K7Q-2MP")).startswith("Others")
