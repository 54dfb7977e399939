"""The text format, read back by a parser that forgives nothing."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.host.telling.prometheus import MAX_MEMBERS, MEMBER_METRICS, METRICS, PREFIX, render
from crowdgrad.host.telling.status import CheckpointStatus, Point, StalenessBucket, Status
from crowdgrad.host.telling.swarm_status import SpreadSummary
from crowdgrad.planner.label_noise import LabelNoise
from tests.cli.test_display import a_status

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|\Z)')
NUMBER = re.compile(r"(?:[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|Inf)|NaN)\Z")


@dataclass
class Family:
    kind: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """By the words of the format's page: HELP and TYPE once each and first, no sample twice."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    helped, current = "", ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert helped not in families
            assert line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current == helped
            assert NAME.match(current)
            assert kind in ("counter", "gauge", "histogram")
            assert current not in families, "a family is told in one piece"
            families[current] = Family(kind)
        else:
            name, labels, value = _sample(line)
            ends = ("_bucket", "_sum", "_count") if families[current].kind == "histogram" else ("",)
            assert name in {current + end for end in ends}
            assert (name, labels) not in families[current].samples
            families[current].samples[name, labels] = value
    for name, family in families.items():
        assert family.samples, "a family without samples says nothing"
        assert (family.kind == "counter") == name.endswith("_total")
    return families


def _sample(line: str) -> tuple[str, frozenset[tuple[str, str]], float]:
    head, value = line.rsplit(" ", 1)
    assert NUMBER.match(value), line
    name, brace, rest = head.partition("{")
    labels, at = [], 0
    if brace:
        assert rest.endswith("}")
        rest = rest[:-1]
        while at < len(rest):
            found = LABEL.match(rest, at)
            assert found, line
            text = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], found[2])
            labels.append((found[1], text))
            at = found.end()
    assert NAME.match(name)
    assert len({label for label, _ in labels}) == len(labels)
    return name, frozenset(labels), float(value.replace("Inf", "inf"))


def full() -> Status:
    """A status in which there is something to tell of everything."""
    point = Point(at_s=1.0, epoch=1.0, loss=0.5, metrics={"accuracy": 0.9}, train_loss=0.4)
    return replace(
        a_status(),
        updates=10,
        mean_staleness=3.2,
        staleness=[
            StalenessBucket(least=0, most=0, updates=4),
            StalenessBucket(least=1, most=1, updates=3),
            StalenessBucket(least=2, most=2, updates=2),
            StalenessBucket(least=1025, most=2048, updates=1),
        ],
        refused_by_reason={"wrong_samples": 3},
        ignored_by_reason={"too_old": 2, "too_late": 1},
        checkpoint=CheckpointStatus(version="0.3", age_s=1.5, bytes=9, written=2, trouble=""),
        best=point,
        test=point,
        label_noise=LabelNoise(share=0.25),
        spreading=SpreadSummary(
            plan="swarm", share="full", progress=0.5, host_copies=1.25, members=7, complete=3
        ),
    )


def test_every_metric_is_told_in_its_family() -> None:
    families = parse(render(full()))
    wanted = [PREFIX + metric.name for metric in (*METRICS, *MEMBER_METRICS)]
    assert list(families) == wanted
    kinds = {PREFIX + metric.name: metric.kind for metric in (*METRICS, *MEMBER_METRICS)}
    assert {name: family.kind for name, family in families.items()} == kinds


def test_numbers_are_those_of_the_status() -> None:
    families = parse(render(full()))
    refused = families["crowdgrad_refused_total"].samples
    assert refused == {("crowdgrad_refused_total", frozenset({("reason", "wrong_samples")})): 3}
    assert families["crowdgrad_updates_total"].samples == {
        ("crowdgrad_updates_total", frozenset()): 10}  # fmt: skip
    spread = ("progress_ratio", "host_copies", "members", "complete_members")
    found = [families[f"crowdgrad_data_{name}"].samples.values() for name in spread]
    assert [list(values) for values in found] == [[0.5], [1.25], [7], [3]]
    scores = families["crowdgrad_score"].samples.values()
    assert sorted(scores) == [0.5, 0.5, 0.5, 0.9, 0.9, 0.9712]


def test_the_histogram_is_cumulative_and_complete() -> None:
    samples = parse(render(full()))["crowdgrad_staleness"].samples
    bounds = {
        dict(labels)["le"]: value
        for (name, labels), value in samples.items()
        if name.endswith("_bucket")
    }
    assert [bounds[le] for le in ("0", "1", "2", "4", "1024", "+Inf")] == [4, 7, 9, 9, 9, 10]
    values = list(bounds.values())
    assert values == sorted(values)
    assert samples["crowdgrad_staleness_count", frozenset()] == 10
    assert samples["crowdgrad_staleness_sum", frozenset()] == 32


@given(st.text(min_size=1, max_size=30))
def test_whatever_a_volunteer_is_called_it_is_one_label(name: str) -> None:
    status = full()
    status = replace(status, members=[replace(status.members[0], name=name)], title=name)
    families = parse(render(status))
    ((_, labels),) = families["crowdgrad_volunteer_updates_total"].samples
    assert dict(labels)["name"] == name


def test_a_crowd_has_no_more_numbers_than_a_large_group() -> None:
    status = full()
    crowd = [replace(status.members[0], position=n, samples=n) for n in range(5 * MAX_MEMBERS)]
    families = parse(render(replace(status, members=crowd)))
    told = families["crowdgrad_volunteer_samples_total"].samples
    assert len(told) == MAX_MEMBERS
    assert min(told.values()) == 4 * MAX_MEMBERS, "the busiest"
    assert families["crowdgrad_volunteers"].samples == {
        ("crowdgrad_volunteers", frozenset()): len(crowd)}  # fmt: skip


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e-300, 1e300])
def test_numbers_that_json_cannot_say_can_be_said_here(value: float) -> None:
    found = parse(render(replace(full(), train_loss=value)))["crowdgrad_train_loss"].samples
    assert list(found.values()) == pytest.approx([value], nan_ok=True)


def test_what_is_not_known_is_left_out() -> None:
    families = parse(render(replace(full(), train_loss=None, checkpoint=None)))
    assert "crowdgrad_train_loss" not in families
    assert not [name for name in families if "checkpoint" in name]
