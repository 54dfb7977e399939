"""The journal: all that is worth a line, units in sums, bounded, and never in the way of work."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from crowdgrad.volunteer import journal as module
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.journal import NAME, OLD_NAME, Journal, Reader


class Clock:
    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def unit(samples: int, seconds: float = 0.5) -> Event:
    return Event(kind="unit", text="Unit 1.", data={"samples": samples, "seconds": seconds})


def lines(home: Path) -> list[tuple[str, str]]:
    return [(entry.what, entry.words) for entry in Reader(home).all()]


def test_everything_worth_a_line_has_one_and_is_passed_on(tmp_path: Path, clock: Clock) -> None:
    heard: list[Event] = []
    journal = Journal(tmp_path, clock)
    journal.host = "0123456789abcdef"
    watch = journal.watch(heard.append)
    events = [
        Event(kind="state", text="Joined."),
        Event(kind="progress", text="Data: 1 of 3."),
        Event(kind="trouble", text="It broke\nhere."),
        Event(kind="note", text="Agreed.", data={"host": "x", "loss": float("nan")}),
    ]
    for event in events:
        watch(event)
    assert heard == events
    found = Reader(tmp_path).all()
    assert [(e.what, e.words) for e in found] == [
        ("state", "Joined."), ("trouble", "It broke here."), ("note", "Agreed."),
    ]  # fmt: skip
    assert {e.host for e in found} == {"0123456789abcdef"}
    assert {e.time for e in found} == {clock.now}
    assert found[-1].data == {"host": "x", "loss": "nan"}


def test_every_line_is_json_for_its_owner_only(tmp_path: Path, clock: Clock) -> None:
    Journal(tmp_path / "new", clock).write("note", "“Digits”, \x1b[2J \ud800")
    file = tmp_path / "new" / NAME
    (row,) = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert set(row) == {"time", "host", "what", "words", "data"}
    assert row["words"].isprintable()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_units_are_summed_up_every_minute_and_at_the_end(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(tmp_path, clock)
    watch = journal.watch(lambda event: None)
    for samples in (100, 200, 300):
        watch(unit(samples))
    assert lines(tmp_path) == []
    clock.now += 61
    watch(unit(300))  # one that was not used: its samples do not count
    watch(unit(400))
    journal.end_job("It ended: all epochs are done.")
    watch(unit(50))  # the next job counts from nothing
    journal.end_job("It ended.")
    assert lines(tmp_path) == [
        ("units", "4 units, 300 samples used, 2.0 s of computing."),
        ("units", "1 unit, 100 samples used, 0.5 s of computing."),
        ("job", "It ended: all epochs are done."),
        ("units", "1 unit, 50 samples used, 0.5 s of computing."),
        ("job", "It ended."),
    ]


def test_a_sum_names_the_job_that_was_agreed_to(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(tmp_path, clock)
    watch = journal.watch(lambda event: None)
    for job in ("digits-1", "digits-2"):
        watch(Event(kind="note", text="Agreed to help.", data={"job": job}))
        watch(unit(100))
        journal.end_job("It ended.")
    watch(unit(50))
    journal.sum_up()
    sums = [entry.data["job"] for entry in Reader(tmp_path).all() if entry.what == "units"]
    assert sums == ["digits-1", "digits-2", ""]


def test_states_that_take_turns_do_not_fill_it(tmp_path: Path, clock: Clock) -> None:
    watch = Journal(tmp_path, clock).watch(lambda event: None)
    for _ in range(100):
        watch(Event(kind="state", text="Waiting."))
        watch(Event(kind="state", text="Working."))
        clock.now += 1
    assert len(lines(tmp_path)) == 4
    for number in range(3 * module.MAX_STATES):  # whatever a host says, memory is bounded
        watch(Event(kind="state", text=f"Waiting: {number}."))
        clock.now += 1
    assert len(lines(tmp_path)) == 4 + 3 * module.MAX_STATES


def test_a_host_cannot_drive_the_past_out(tmp_path: Path, clock: Clock) -> None:
    journal = Journal(tmp_path, clock)
    watch = journal.watch(lambda event: None)
    watch(Event(kind="note", text="Agreed."))
    for number in range(10_000):
        watch(Event(kind="state", text=f"Waiting: reason {number}."))
        if number % 100 == 0:
            journal.end_job("It ended.")
    said = [words for _, words in lines(tmp_path)]
    assert said[0] == "Agreed."
    assert sum(words.startswith("Waiting") for words in said) == module.LINES_A_MINUTE - 1
    clock.now += 61
    watch(Event(kind="note", text="And now?"))
    said = [words for _, words in lines(tmp_path)]
    assert said[-2:] == ["9901 lines of a busy minute were left out.", "And now?"]


def test_it_turns_over_and_keeps_one_old_file(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    journal = Journal(tmp_path, clock)
    for number in range(100):
        journal.write("note", f"line {number}")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([NAME, OLD_NAME])
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    found = [words for _, words in lines(tmp_path)]
    assert found[-1] == "line 99"
    assert found == [f"line {number}" for number in range(100 - len(found), 100)]


def test_a_disk_that_refuses_stops_nobody_and_is_said_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "home").write_text("a file, not a folder")
    heard: list[Event] = []
    watch = Journal(tmp_path / "home", clock).watch(heard.append)
    for _ in range(3):
        watch(Event(kind="note", text="x"))
    assert len(heard) == 3
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1


def test_torn_lines_are_passed_over_and_news_follows(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, reader = Journal(tmp_path, clock), Reader(tmp_path)
    assert reader.all() == []
    journal.write("note", "one")
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"time": 1, "host": "\n[]\n{"time": "x"}\n\xff\n{"time": 2')
    assert [entry.words for entry in reader.all()] == ["one"]
    with (tmp_path / NAME).open("ab") as file:  # a line is read when it is whole
        file.write(b', "host": "", "what": "note", "words": "two", "data": {}}\n')
    assert [entry.words for entry in reader.news()] == ["two"]
    assert reader.news() == []
    monkeypatch.setattr(module, "MAX_BYTES", 10)
    journal.write("note", "three")  # in a new file
    assert [entry.words for entry in reader.news()] == ["three"]
