"""How data spreads, as a terminal shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from crowdgrad.cli.display import View, plain, summary
from crowdgrad.cli.spreading import LINGER_S, SHADES, per_cent, strip
from crowdgrad.host.telling.status import Status
from crowdgrad.host.telling.swarm_status import SpreadSummary, summarise
from crowdgrad.host.telling.swarm_taking import take_swarm
from tests.cli.test_display import a_status, shown
from tests.host import swarms


def spreading(members: int, rounds: int | None, names: dict[int, str] | None = None) -> Status:
    played = swarms.play(members, 60, rounds)
    found = summarise(take_swarm(played, names or swarms.names(members), played.now))
    return replace(a_status(), spreading=found)


def test_while_data_spreads_everybody_has_a_strip() -> None:
    status = spreading(4, 30)
    assert status.spreading is not None
    text = shown(status)
    copies = status.spreading.host_copies
    assert f"0 of 4 have all, host sent {copies:.2f} copies" in text
    for one in status.spreading.behind:
        (row,) = (line for line in text.splitlines() if strip(one.map) in line and one.name in line)
        assert per_cent(one.progress) in row
    assert f"data {per_cent(status.spreading.progress)}, host sent" in plain(status)


def test_it_goes_when_everybody_has_what_it_wants() -> None:
    view, console = View(), Console(width=80)

    def seen(status: Status) -> bool:
        with console.capture() as found:
            console.print(view.render(status))
        return "host sent" in found.get()

    on_the_way, done = spreading(4, 30), spreading(4, None)
    assert not seen(replace(done, elapsed_s=1.0))
    assert seen(replace(on_the_way, elapsed_s=2.0))
    assert seen(replace(done, elapsed_s=2.0 + 0.9 * LINGER_S)), "it does not flicker"
    assert not seen(replace(done, elapsed_s=2.0 + LINGER_S))
    assert "data" not in plain(done)
    assert "host sent" not in shown(a_status())


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("members", [3, 40])
def test_it_fits_the_terminal(width: int, members: int) -> None:
    long = "a very long name that does not end " * 10
    status = spreading(members, 25, dict.fromkeys(range(1, members + 1), long))
    lines = shown(status, width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 40
    assert ("and 32 more" in "\n".join(lines)) is (members == 40)


def test_names_are_text_not_commands() -> None:
    evil = "[/x][red]"
    assert evil in shown(spreading(2, 10, {1: evil, 2: evil}))


def test_only_what_is_all_there_looks_full() -> None:
    assert strip([1.0] * 60) == SHADES[-1] * 20
    assert strip([0.99] * 60) == SHADES[-2] * 20
    assert strip([0.01] * 60) == SHADES[1] * 20
    assert strip([]) == strip([0.0] * 7) == SHADES[0] * 20
    assert strip([1.0, 0.0]) == SHADES[-1] * 10 + SHADES[0] * 10
    assert (per_cent(0.9999), per_cent(1.0)) == ("99 %", "100 %")


def test_at_the_end_it_is_told_how_often_the_host_sent_it() -> None:
    told = SpreadSummary(
        plan="swarm", share="full", progress=1.0, host_copies=1.02, members=8, complete=8
    )
    console = Console(width=200)
    with console.capture() as found:
        summary(console, replace(a_status(), spreading=told), "runs/x")
    assert "8 of 8 members had all they wanted; the host sent 1.02 copies." in found.get()
