"""From what is said to a status: phases, counts, the job at hand, and what stays of it."""

from __future__ import annotations

import math
from dataclasses import replace

from crowdgrad.domain.manners import Effort, Limits, Readings
from crowdgrad.volunteer.events import Event
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.remote.board import MAX_LINES, Around, Board
from crowdgrad.volunteer.remote.status import DataHere, Question, Totals, WorkStatus

FULL = Effort(share=1.0, threads=1, reason="nobody uses this machine")
REST = Effort(share=0, threads=1, reason="you paused it")
JOINED = Event(
    kind="state",
    text="Joined.",
    phase="starting",
    data={"job": "d-1", "title": "Digits", "cause": "play", "host": "ab" * 8, "host_name": "lab",
          "address": "192.0.2.1:1", "position": 3, "why": "It is near."},
)  # fmt: skip
WORKING = Event(kind="state", text="Working.", phase="working", data={"engine": "onnx"})


def seen(
    board: Board, now: float = 0.0, effort: Effort = FULL, question: Question | None = None
) -> WorkStatus:
    around = Around(
        name="ada",
        key="cd" * 8,
        effort=effort,
        readings=Readings(at=now, minute_of_day=0),
        limits=Limits(),
        question=question,
        totals=Totals(),
    )
    return board.status(now, around)


def unit(samples: int, accepted: int, *, loss: float = 0.5, refused: int = 0) -> Event:
    data = {"samples": samples, "accepted": accepted, "refused": refused, "loss": loss,
            "seconds": 0.5}  # fmt: skip
    return Event(kind="unit", text="Unit.", data=data)


def test_from_nothing_to_work_and_back() -> None:
    board = Board(100.0)
    assert (seen(board).state, seen(board).job, seen(board).since) == ("starting", None, 100.0)
    board.take(Event(kind="state", text="Nobody is here.", phase="looking"), 101.0)
    assert (seen(board).state, seen(board).doing) == ("looking", "Nobody is here.")
    board.take(JOINED, 102.0)
    agreed = Event(kind="note", text="Agreed.", data={"memory_bytes": 7, "data_bytes": 8})
    board.take(agreed, 103.0)
    board.take(WORKING, 104.0)
    found = seen(board)
    assert found.state == "working"
    assert found.job is not None
    job = found.job
    assert (job.id, job.title, job.host_name, job.position) == ("d-1", "Digits", "lab", 3)
    assert job.why == "It is near."
    assert (job.engine, job.memory_bytes, job.data_bytes) == ("onnx", 7, 8)
    board.ended(Outcome(reason="done", left=False, samples=10, credit=2.0, title="Digits"), 105.0)
    found = seen(board)
    assert (found.state, found.job) == ("looking", None)
    assert (found.jobs[0].title, found.jobs[0].samples, found.jobs[0].ended_at) == (
        "Digits", 10, 105.0,
    )  # fmt: skip
    board.end("It is over.")
    assert (seen(board).state, seen(board).doing) == ("over", "It is over.")


def test_our_part_of_the_work_is_what_the_host_said_last() -> None:
    board = Board(0.0)
    board.take(JOINED, 0.0)
    board.take(unit(100, 1), 1.0)
    assert _share(board) is None, "an older host does not say"
    board.take(Event(kind="unit", text="Unit.", data={**unit(200, 2).data, "share": 0.25}), 2.0)
    assert _share(board) == 0.25
    board.take(JOINED, 3.0)  # cut off, and back again
    assert _share(board) == 0.25
    board.take(replace(JOINED, data={**JOINED.data, "job": "d-2"}), 4.0)
    assert _share(board) is None, "it was of another job"
    board.ended(Outcome(reason="done", left=False, samples=5, credit=1.0, share=0.125), 5.0)
    assert seen(board).jobs[-1].share == 0.125
    assert seen(board).log[-1].text.endswith("You gave 5 samples, 12.5 % of all.")


def _share(board: Board) -> float | None:
    job = seen(board).job
    assert job is not None
    return job.share


def test_a_pause_and_a_question_come_before_what_the_job_does() -> None:
    board = Board(0.0)
    board.take(JOINED, 0.0)
    board.take(WORKING, 0.0)
    asked = Question(id="1", title="", cause="", host="", host_name="", lines=())
    assert seen(board, effort=REST).state == "paused"
    assert seen(board, effort=REST).doing == REST.reason
    assert seen(board).doing == "Working."
    assert seen(board, effort=REST, question=asked).state == "asking"
    assert seen(board).state == "working"


def test_counts_go_on_from_one_job_to_the_next() -> None:
    board = Board(0.0)
    board.take(JOINED, 0.0)
    board.take(unit(100, 1), 1.0)
    board.take(unit(200, 2, refused=1, loss=math.nan), 2.0)
    assert seen(board).loss is None, "JSON has no NaN"
    board.ended(Outcome(reason="done", left=False, samples=200, credit=None), 3.0)
    board.take(unit(200, 2), 3.0)
    assert seen(board, 3.0).samples == 200, "it was counted with its job"
    board.take(JOINED, 4.0)
    board.take(unit(50, 1), 5.0)
    found = seen(board, 5.0)
    assert (found.samples, found.accepted, found.refused) == (250, 3, 1)
    assert (found.loss, found.compute_s) == (0.5, 1.5)


def test_speed_is_that_of_the_last_half_minute() -> None:
    board = Board(0.0)
    board.take(JOINED, 0.0)
    for second in range(61):
        board.take(unit(10 * second if second < 40 else 400, second), float(second))
    assert seen(board, 60.0).samples_per_s == (400 - 300) / 30
    assert seen(board, 200.0).samples_per_s == 0.0, "nothing was done lately"


def test_coming_back_to_the_same_job_forgets_nothing_of_it() -> None:
    board = Board(0.0)
    board.take(JOINED, 0.0)
    board.take(WORKING, 1.0)
    lost = Event(kind="trouble", text="Lost. Trying again.", phase="waiting")
    board.take(lost, 2.0)
    assert (seen(board).state, seen(board).trouble) == ("waiting", lost.text)
    board.take(JOINED, 3.0)
    job = seen(board).job
    assert job is not None
    assert job.engine == "onnx"
    board.take(unit(1, 1), 4.0)
    assert (seen(board).state, seen(board).trouble) == ("working", "")


def test_data_is_counted_over_shards_and_the_log_is_bounded() -> None:
    board = Board(0.0)
    assert seen(board).data is None
    for shard, done in ((0, 4), (1, 1), (1, 3)):
        chunks = {"shard": shard, "done": done, "total": 4}
        board.take(Event(kind="progress", text="Data.", data=chunks), 0.0)
    assert seen(board).data == DataHere(done=7, total=8)
    for number in range(MAX_LINES + 5):
        board.take(Event(kind="note", text=str(number)), 0.0)
    log = seen(board).log
    assert (len(log), log[0].text, log[-1].text) == (MAX_LINES, "5", str(MAX_LINES + 4))
