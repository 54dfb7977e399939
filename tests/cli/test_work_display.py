"""The panel of `crowdgrad work`, and what it writes for scripts."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from crowdgrad.cli.events import Lines
from crowdgrad.cli.work import _Told
from crowdgrad.cli.work_display import Screen, credit, render
from crowdgrad.domain.manners import Effort
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.governor import free
from crowdgrad.volunteer.remote.board import Board
from crowdgrad.volunteer.remote.desk import Desk, Work
from crowdgrad.volunteer.remote.status import Totals, WorkStatus
from tests.volunteer.test_remote_board import JOINED, REST, WORKING, seen, unit


def at_work() -> WorkStatus:
    board = Board(0.0)
    for event in (JOINED, WORKING, unit(1234, 12), Event(kind="note", text="A [bold]note.")):
        board.take(event, 1.0)
    return seen(board, 2.0)


def drawn(status: WorkStatus, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(render(status, width))
    return console.export_text()


def test_the_panel_says_what_for_whom_how_hard_and_what_came_of_it() -> None:
    text = drawn(at_work())
    for words in ("Digits · play", "Working.", "For lab, as number 3", "working", "Ctrl-C stops",
                  "Effort: 100 % of the time. nobody uses this machine", "1,234", "0.5000",
                  "A [bold]note."):  # fmt: skip
        assert words in text, text


def test_our_part_of_the_work_is_said_once_the_host_has() -> None:
    status = at_work()
    assert status.job is not None
    assert "your part" not in drawn(status)
    text = drawn(replace(status, job=replace(status.job, share=0.1234)))
    assert "your part" in text
    assert "12.3 %" in text


def test_a_rest_and_a_trouble_are_said() -> None:
    text = drawn(replace(at_work(), state="paused", effort=REST, trouble="The disk is full."))
    assert "Effort: at rest. you paused it" in text
    assert "The disk is full." in text
    assert "paused" in text


def test_why_it_pauses_is_said_once() -> None:
    board = Board(0.0)
    board.take(JOINED, 1.0)
    text = drawn(seen(board, 2.0, effort=REST))
    assert text.count(REST.reason) == 1, text


def test_how_many_cores_is_said_where_there_are_several() -> None:
    effort = Effort(share=0.25, threads=4, reason="Working gently: so your limits say.")
    assert "Effort: 25 % of the time on 4 cores. Working" in drawn(
        replace(at_work(), effort=effort)
    )


@pytest.mark.parametrize("width", [32, 40, 60, 80, 200])
def test_it_keeps_to_its_width_and_cuts_no_number_off(width: int) -> None:
    status = replace(at_work(), samples=3_641_700, compute_s=1e5, refused=3)
    text = drawn(status, width)
    assert max(map(len, text.splitlines())) <= width
    for words in ("3,641,700", "samples/s", "0.5000", "at work", "27.8 h", "credit so far", "3  "):
        assert words in text, text


def test_credit_has_three_digits() -> None:
    said = [credit(flop) for flop in (0.0, 999.0, 1e3, 5.94e9, 1.5e18)]
    assert said == ["0 FLOP", "999 FLOP", "1 kFLOP", "5.94 GFLOP", "1.5 EFLOP"]


def test_the_panel_goes_and_comes_back_around_a_question() -> None:
    console = Console(width=80, height=30, file=io.StringIO(), force_terminal=True)

    async def main() -> None:
        shown = asyncio.Event()

        def take() -> WorkStatus:
            shown.set()
            return at_work()

        async with Screen(console) as screen:
            screen.show(take)
            await shown.wait()
            with screen.paused():
                console.print("Help?")
            shown.clear()
            await shown.wait()

    asyncio.run(main())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Help?" in text
    assert "Digits" in text


def test_events_are_lines_of_json() -> None:
    async def main() -> list[dict[str, object]]:
        out, governor = io.StringIO(), free()
        work = Work(
            name="ada", key="", governor=governor, totals=Totals, leave=list, stop=list
        )  # fmt: skip
        desk = Desk(work, lambda: 5.0)
        told = _Told(Lines(out, lambda: 7.0))
        watch = desk.watch(told.watch)
        told.opened(desk)
        watch(JOINED)
        watch(unit(1, 1, loss=float("nan")))
        desk.pause(None)
        desk.close("It is over.")
        told.finish()
        return [json.loads(line) for line in out.getvalue().splitlines()]

    rows = asyncio.run(main())
    assert {row["at"] for row in rows} == {7.0}
    said = [(row["event"], _state(row)) for row in rows]
    assert said == [
        ("status", "starting"), ("state", ""), ("status", "starting"), ("unit", ""),
        ("status", "working"), ("status", "paused"), ("status", "over"), ("status", "over"),
    ]  # fmt: skip
    assert rows[3]["data"]["loss"] is None  # type: ignore[index]


def _state(row: dict[str, object]) -> str:
    status = row.get("status")
    return str(status["state"]) if isinstance(status, dict) else ""
