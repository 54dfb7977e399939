"""The terminal's view of a job."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import pytest
import segno
from rich.console import Console

from crowdgrad.cli.display import View, _amount, plain, qr_code, sparkline, summary
from crowdgrad.domain.program import Better
from crowdgrad.domain.work import Version
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.telling.status import CheckpointStatus, Others, Point, Status, TimeSplit, spell
from crowdgrad.host.telling.taking import take_status
from crowdgrad.planner.label_noise import LabelNoise
from tests.host import small


def a_status() -> Status:
    async def make() -> Status:
        training = small.training()
        training.join(0.0, small.volunteer("ada"), own=False)
        training.join(0.0, small.volunteer("ben"), own=False)
        training.leave(small.volunteer("ben").id, "left: the volunteer stopped")
        training.state.train_loss = 0.25
        training.course.history.append(
            Scores(
                kind="validate",
                version=Version(incarnation=0, count=0),
                epoch=1.0,
                at_s=2.0,
                loss=0.5,
                metrics={"accuracy": 0.9712},
            )
        )
        return take_status(training, 1.0)

    return asyncio.run(make())


@pytest.mark.parametrize("width", [80, 120])
def test_one_screen_shows_everything(width: int) -> None:
    console = Console(width=width, force_terminal=True)
    with console.capture() as shown:
        console.print(View().render(a_status()))
    text = shown.get()
    for wanted in (
        "samples/s",
        "updates/s",
        "staleness",
        "0.2500",
        "97.12 %",
        "ada",
        "ben",
        "left",
    ):
        assert wanted in text


def shown(status: Status, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as found:
        console.print(View().render(status))
    return found.get()


def test_who_went_is_shown_with_the_reason() -> None:
    assert "ben went after 0 s: left: the volunteer stopped" in shown(a_status())
    status = a_status()
    many = [replace(status.departures[0], name=f"guest {n}") for n in range(20)]
    text = shown(replace(status, departures=many))
    assert [f"guest {n} went" in text for n in (16, 17, 18, 19)] == [False, True, True, True]


def test_a_reason_that_does_not_fit_says_so_and_nothing_else_is_cut() -> None:
    status = a_status()
    waits = "waiting: 8 exchanges of 8 are under way, and 12 others wait before it"
    ada = replace(status.members[0], state=waits, samples=12_345_678, samples_per_s=123_456.0)
    row = next(line for line in shown(replace(status, members=[ada])).splitlines() if "ada" in line)
    assert "123 k   12.3 M" in row
    assert "waiting: 8" in row
    assert row.rstrip("│ ").endswith("…")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 "), (999.4, "999 "), (999.6, "1 k"), (999_600, "1 M"), (12_345_678, "12.3 M"),
     (999.7e9, "1 T"), (1.5e12, "1.5 T")],
)  # fmt: skip
def test_amounts_have_three_digits(value: float, text: str) -> None:
    assert _amount(value) == text


def test_at_the_end_it_is_told_in_words_why_people_went() -> None:
    console = Console(width=200)
    with console.capture() as found:
        summary(console, replace(a_status(), departures_by_kind={"host": 4, "slow": 1}), "runs/x")
    assert "5 went (4 went with the host, 1 were too slow)" in found.get()


def test_at_the_end_it_is_told_whether_labels_look_wrong() -> None:
    noise = LabelNoise(share=0.2, error=0.013, reason="200 of 1,000 records")
    for found, wanted in ((noise, "the loss of 20.0 % (± 1.3 %) stays high"), (None, "")):
        console = Console(width=200)
        with console.capture() as told:
            summary(console, replace(a_status(), label_noise=found), "runs/x")
        assert ("Noise in labels" in told.get()) is (found is not None)
        assert wanted in told.get()


def test_at_the_end_everybody_has_the_speed_of_all_their_time() -> None:
    times = TimeSplit(compute_s=2.0, exchange_s=1.5, wait_s=0.5)
    status = replace(a_status(), phase="over")
    ada = replace(status.members[0], samples=8_000, samples_per_s=0.0, times=times)
    console = Console(width=100)
    with console.capture() as found:
        summary(console, replace(status, members=(ada, *status.members[1:])), "runs/x")
    (row,) = (line for line in found.get().splitlines() if "ada" in line)
    assert row.split()[3:6] == ["2", "k", "8"]


def test_a_checkpoint_is_young_and_its_trouble_loud() -> None:
    kept = CheckpointStatus(version="0.3", age_s=4.0, bytes=9, written=2, trouble="")
    status = replace(a_status(), checkpoint=kept)
    assert "saved 4 s ago" in shown(status)
    assert "not saved yet" in shown(replace(status, checkpoint=replace(kept, age_s=None)))
    status = replace(status, checkpoint=replace(kept, trouble="CHECKPOINTS ARE PAUSED: no room."))
    assert "CHECKPOINTS ARE PAUSED: no room." in shown(status)
    assert "CHECKPOINTS ARE PAUSED: no room." in plain(status)


def test_a_pause_is_seen() -> None:
    status = replace(a_status(), paused=True)
    assert "paused" in shown(status)
    assert "paused" in plain(status)
    assert "paused" not in shown(a_status())


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    status = a_status()
    long = "a very long story that does not end " * 10
    gone = [replace(status.departures[0], name=long, reason=long)] * 20
    status = replace(
        status, departures=gone, resumed=123, arrivals=12345, departures_by_kind={"left": 12300},
        bytes_received_per_s=123456789.0, bytes_sent_per_s=987654321.0, notice=long,
    )  # fmt: skip
    assert max(map(len, shown(status, width).splitlines())) <= width


def test_a_crowd_fits_on_a_screen() -> None:
    status = a_status()
    crowd = [
        replace(status.members[0], position=n, name=f"v{n}", connected=n % 2 == 0, samples=n)
        for n in range(500)
    ]
    text = shown(replace(status, members=crowd))
    assert len(text.splitlines()) <= 40
    assert "v498" in text, "who is here and gave the most"
    assert "and 488 more, 238 here" in text


def test_whom_the_status_does_not_name_is_counted() -> None:
    others = Others(members=900, connected=40, samples=123_456, share=0.25)
    status = replace(a_status(), others=others)
    row = next(line for line in shown(status).splitlines() if "900 more" in line)
    assert all(word in row for word in ("and 900 more, 40 here", "123 k", "25.0 %"))
    assert "41 here" in plain(status)


def test_data_that_grows_is_seen() -> None:
    status = replace(a_status(), growing=True, train_records=12_345, growths=2)
    assert "12,345 records, grew 2×" in shown(status)
    assert "12,345 records" in plain(status)
    console = Console(width=200, record=True, file=io.StringIO())
    summary(console, status, "runs/x")
    assert "The data grew 2 times, to 12,345 training records." in console.export_text()
    still = replace(status, growing=False)
    assert "12,345" not in shown(still) + plain(still)


def test_a_line_for_a_log() -> None:
    line = plain(a_status())
    assert "\n" not in line
    for wanted in ("training", "accuracy 97.12 %", "loss 0.2500", "1 here"):
        assert wanted in line


def test_the_summary_says_where_the_model_is() -> None:
    console = Console(width=100)
    with console.capture() as shown:
        summary(console, a_status(), "runs/some-run")
    assert "runs/some-run" in shown.get()
    assert "ada" in shown.get()


def test_strangers_words_are_text_not_commands() -> None:
    status = a_status()
    evil = "[/x][red]\\x1b[2J"
    members = [replace(member, name=evil, state=evil) for member in status.members]
    status = replace(status, title=evil, reason=evil, members=members)
    console = Console(width=120)
    with console.capture() as shown:
        console.print(View().render(status))
        summary(console, status, "runs/x")
    assert "[/x]" in shown.get()


@pytest.mark.parametrize(
    ("metric", "better", "value", "shown"),
    [
        ("accuracy", "higher", 0.9712, "97.12 %"),
        ("top5", "higher", 1.0, "100.00 %"),
        ("accuracy", "higher", 1.5, "1.5000"),
        ("r2", "higher", 0.5, "0.5000"),
        ("error rate", "lower", 0.5, "0.5000"),
        ("perplexity", "lower", 123456.0, "1.235e+05"),
    ],
)
def test_only_shares_are_shown_in_per_cent(
    metric: str, better: Better, value: float, shown: str
) -> None:
    status = replace(a_status(), metric=metric, better=better)
    point = Point(at_s=1.0, epoch=1.0, loss=0.1, metrics={metric: value}, train_loss=None)
    assert spell(status, point) == shown


def test_without_a_metric_the_loss_is_shown() -> None:
    status = replace(a_status(), metric=None, better="lower")
    point = Point(at_s=1.0, epoch=1.0, loss=0.25, metrics={}, train_loss=None)
    assert spell(status, point) == "0.2500"
    assert spell(status, None) == "–"
    assert status.watched == "loss"


def test_sparks_rise_with_the_values() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([1.0]) == ""
    assert sparkline([2.0, 2.0]) == "▁▁"


def test_a_link_becomes_a_picture_that_can_be_read_back() -> None:
    """Every character is two modules, light ones drawn: the same matrix, with its quiet border."""
    link = "https://match.example.org/j/K7Q-2MP"
    rows = qr_code(link).plain.split("\n")
    light = {"█": (1, 1), "▀": (1, 0), "▄": (0, 1), " ": (0, 0)}
    seen = [[light[c][half] for c in row] for row in rows for half in (0, 1)]
    matrix = [[1 - module for module in row] for row in segno.make(link).matrix]
    size, border = len(matrix), 2
    assert [row[border : border + size] for row in seen[border : border + size]] == matrix
    assert all(all(row) for row in seen[:border])
    assert {len(row) for row in rows} == {size + 2 * border}
