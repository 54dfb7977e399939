"""The report: one file, no outside help, nothing a title could smuggle in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.data import Card
from crowdgrad.domain.program import Program
from crowdgrad.domain.work import Version, VolunteerId
from crowdgrad.host.earlier import Earlier
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.job import Prepared
from crowdgrad.host.members.departures import Departure
from crowdgrad.host.telling.charts import Line, bar_chart, line_chart, ticks
from crowdgrad.host.telling.report import render
from crowdgrad.host.telling.status import Point, StalenessBucket, Status, TimeSplit
from crowdgrad.host.telling.swarm_report import DRAWN, section
from crowdgrad.host.telling.swarm_taking import take_swarm
from crowdgrad.host.telling.taking import take_status
from crowdgrad.planner.label_noise import UNKNOWN, Suspect, judge
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small, swarms
from tests.host.swarms import Played


class Reader(HTMLParser):
    """Collects what the page shows and everything it would load or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(page)
        assert self.open == [], "a tag was not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.loads += [tag] if tag in ("script", "link", "img", "iframe") else []
        self.loads += [f"{k}={v}" for k, v in attrs if k in ("src", "href") or k.startswith("on")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def prepared(title: str) -> Prepared:
    manifest, blobs = small.manifest()
    return Prepared(
        job=replace(small.job(), title=title),
        program=Program(spec=small.spec(), gradient=b"", forward=b""),
        manifest=manifest,
        blobs=blobs,
        initial=np.zeros(small.SIZE, np.float32),
        recipe=AsyncSGD(),
        minimum=0,
        maximum=10,
        start="any",
        max_gradient_error=0.0,
        note="a note",
    )


def status(name: str) -> Status:
    async def make() -> Status:
        training = small.training()
        account = training.join(0.0, small.volunteer("ada"), own=False)
        object.__setattr__(account.volunteer, "name", name)
        training.stop("enough")
        return take_status(training, 1.0)

    return asyncio.run(make())


def history(*losses: float) -> tuple[Scores, ...]:
    return tuple(
        Scores(
            kind="validate",
            version=Version(incarnation=0, count=n),
            epoch=n / 2,
            at_s=float(n),
            loss=loss,
            metrics={"accuracy": 1 / (1 + abs(loss))},
            train_loss=loss / 2,
        )
        for n, loss in enumerate(losses)
    )


def test_it_shows_how_it_went_and_loads_nothing() -> None:
    page = Reader(render(prepared("Digits"), status("ada"), history(2.0, 1.0, 0.5)))
    text = " ".join(page.text)
    for wanted in ("Digits", "Stopped early: enough.", "1. ada", "async_sgd", "Loss", "a note"):
        assert wanted in text
    assert page.loads == []


def test_a_title_or_a_name_cannot_smuggle_anything_in() -> None:
    evil = "<script>alert(1)</script>"
    page = Reader(render(prepared(evil), status(evil), history(1.0)))
    assert page.loads == []
    assert any(evil in text for text in page.text)


def test_it_says_which_way_is_better_and_where_it_began() -> None:
    earlier = Earlier(
        folder=Path("runs/first-1"), id="first-1", title="", split_seed=0, times=0, records={},
        told={},
    )  # fmt: skip
    made = replace(prepared("Words"), notes=("5 of 9 test records are left out.",), earlier=earlier)
    point = Point(at_s=1.0, epoch=1.0, loss=0.2, metrics={"perplexity": 0.5}, train_loss=None)
    told = replace(status("ada"), metric="perplexity", better="lower", best=point, test=point)
    scores = tuple(replace(s, metrics={"perplexity": s.loss}) for s in history(2.0, 1.0))
    text = " ".join(Reader(render(made, told, scores)).text)
    for wanted in ("Validation perplexity (lower is better)", "Continues", "first-1",
                   "5 of 9 test records", "perplexity 0.5, loss 0.2"):  # fmt: skip
        assert wanted in text
    assert "50.00 %" not in text


def test_it_tells_whose_labels_look_wrong() -> None:
    seen = {n: 5.0 + n if n < 3 else 0.01 * n for n in range(40)}
    noise, _ = judge([seen] * 3, 10)
    suspect = Suspect(shard=4, row=17, loss=6.25, label="3 (<b>cat)")
    told = replace(status("ada"), label_noise=replace(noise, suspects=(suspect,)))
    page = Reader(render(prepared("Digits"), told, history(1.0)))
    text = " ".join(page.text)
    for wanted in ("Noise in labels", "the loss of 7.5 %", "3 of 40 training records", "6.25",
                   "3 (<b>cat)", "loss, below", "more"):  # fmt: skip
        assert wanted in text
    assert page.loads == []
    unknown = replace(status("ada"), label_noise=UNKNOWN)
    assert "not known; nobody has looked" in " ".join(
        Reader(render(prepared("Digits"), unknown, history(1.0))).text
    )
    assert "Noise in labels" not in render(prepared("Digits"), status("ada"), history(1.0))


def test_it_tells_who_came_and_went_and_why() -> None:
    gone = Departure(
        at_s=90.0, who=VolunteerId("eve"), name="<i>eve", stayed_s=12.0, samples=1234,
        reason="fell silent: nothing heard for 10 s",
    )  # fmt: skip
    told = replace(status("ada"), departures=[gone], departures_by_kind={"silent": 3}, arrivals=5)
    page = Reader(render(prepared("Digits"), told, history(1.0)))
    text = " ".join(page.text)
    assert "<i>eve" in text
    for wanted in ("5 came, 3 went (3 fell silent). The last 1:", gone.reason, "1,234", "12 s"):
        assert wanted in text


def test_it_shows_where_time_went_and_how_stale_updates_were() -> None:
    told = status("ada")
    times = TimeSplit(compute_share=0.5, exchange_share=0.3, wait_share=0.2)
    told = replace(
        told, members=[replace(told.members[0], times=times)],
        staleness=[StalenessBucket(least=0, most=0, updates=7),
                   StalenessBucket(least=3, most=4, updates=9)],
    )  # fmt: skip
    page = render(prepared("Digits"), told, history(1.0))
    assert "computing 50 %, exchanging 30 %, waiting 20 %" in page
    assert "3–4: 9" in " ".join(Reader(page).text)


def test_where_it_went_on_from_a_checkpoint_is_marked() -> None:
    scores = history(2.0, 1.0, 0.5, 0.25)
    again = [replace(s, version=Version(incarnation=2, count=9)) for s in scores[2:]]
    told = replace(status("ada"), resumed=2)
    page = render(prepared("Digits"), told, (*scores[:2], *again))
    assert page.count('<line class="mark"') == 2, "one on each curve"
    assert "started again twice" in page
    assert '<line class="mark"' not in render(prepared("Digits"), told, scores)


@given(st.lists(st.floats(0, 1e12), max_size=12))
def test_any_counts_make_bars(values: list[float]) -> None:
    bars = [(str(n), value) for n, value in enumerate(values)]
    chart = bar_chart(bars, x_label="x", y_label="y")
    Reader(chart)
    assert chart.count("<rect") == (len(bars) if any(values) else 0)
    assert "nan" not in chart


def test_a_run_without_evaluations_says_so() -> None:
    page = Reader(render(prepared("Digits"), status("ada"), ()))
    assert any("ended too early" in text for text in page.text)


@given(st.lists(st.floats(allow_nan=True, width=32), max_size=20))
def test_any_numbers_make_a_chart(values: list[float]) -> None:
    points = [(float(n), value) for n, value in enumerate(values)]
    chart = line_chart([Line(name="a", css="a", points=points)], x_label="x", y_label="y")
    Reader(chart)
    assert "nan" not in chart
    assert "inf" not in chart


@given(st.floats(-1e30, 1e30), st.floats(0, 1e30))
def test_ticks_are_round_and_span_the_range(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert found == sorted(found)
    slack = max(abs(low), abs(low + span)) * 1e-6 + 1e-12
    assert found[0] <= low + slack
    assert found[-1] >= low + span - slack
    assert 2 <= len(found) <= 12


def test_ticks_people_like() -> None:
    assert ticks(0.0, 60.0) == pytest.approx([0, 20, 40, 60])
    assert ticks(0.91, 0.98) == pytest.approx([0.9, 0.92, 0.94, 0.96, 0.98])


def test_it_says_what_the_data_is_and_that_it_grew() -> None:
    made = prepared("Digits")
    card = Card(source="<b>photos</b>", licence="", classes=("cat", "dog"), left_out=7)
    made = replace(
        made, job=replace(made.job, growing=True), manifest=replace(made.manifest, card=card)
    )
    told = replace(status("ada"), growths=2, growing=True)
    text = " ".join(Reader(render(made, told, history(1.0))).text)
    for words in ("Data: source <b>photos</b>", "Data: licence unknown", "2: cat, dog",
                  "7 records that could not be used", "Data was added twice"):  # fmt: skip
        assert words in text


def spread(played: Played, names: dict[int, str]) -> Reader:
    swarm = take_swarm(played, names, played.now)
    return Reader(render(prepared("Digits"), status("ada"), history(1.0), swarm))


def test_it_shows_how_the_data_spread() -> None:
    played = swarms.play(5, 40, leaves=[2])
    page = spread(played, swarms.names(5))
    text = " ".join(page.text)
    for wanted in ("How the data spread", "Plan swarm: everybody passes on", "4 of 4 members had",
                   "copies of the 40 kB", "Who held what", "Who sent to whom", "host → ada: ",
                   "ada → ", "2. ben", "gone", "100 %", "has all it wants"):  # fmt: skip
        assert wanted in text
    assert page.loads == []
    assert "How the data spread" not in render(prepared("Digits"), status("ada"), history(1.0))


def test_every_flow_between_those_drawn_is_an_arrow() -> None:
    played = swarms.play(5, 40)
    drawn = section(take_swarm(played, swarms.names(5), played.now))
    assert drawn.count('<path class="flow') == len(played.crowd.flows)
    assert drawn.count('<path class="flow host"') == 5
    assert drawn.count('class="node') == 6


def test_of_a_crowd_the_busiest_are_drawn_and_all_are_counted() -> None:
    played = swarms.play(120, 60, 30)
    drawn = section(take_swarm(played, swarms.names(120), played.now))
    assert drawn.count('class="node') == DRAWN + 1
    assert "Drawn are the 40 of 120 members" in drawn
    assert "and 20 more" in drawn
    assert len(drawn) < 300_000


def test_a_name_in_the_swarm_cannot_smuggle_anything_in() -> None:
    evil = "<script>alert(1)</script>"
    page = spread(swarms.play(3, 40), dict.fromkeys(range(1, 4), evil))
    assert page.loads == []
    assert any(evil in text for text in page.text)


@pytest.mark.parametrize("members", [0, 1, 2, 17])
def test_any_number_of_members_makes_a_picture(members: int) -> None:
    needs = {node: range(7) for node in range(1, members + 1)}
    played = swarms.play(chunks=7, needs=needs) if members else nobody()
    drawn = section(take_swarm(played, {}, played.now))
    Reader(drawn)
    assert "nan" not in drawn
    assert ("<svg" in drawn) is bool(members)


def nobody() -> Played:
    played = swarms.play(1, 7, 0)
    played.crowd.leave(1)
    return played
