"""docs/metrics.md names every field, tag and metric that is written, and no other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from crowdgrad.domain.work import Version
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.members.departures import Kind
from crowdgrad.host.telling import metrics
from crowdgrad.host.telling.logbook import entry
from crowdgrad.host.telling.prometheus import MAX_MEMBERS, MEMBER_METRICS, METRICS, PREFIX
from crowdgrad.planner.label_noise import UNKNOWN
from tests.cli.test_display import a_status
from tests.host.telling.test_logbook import a_record
from tests.host.telling.test_prometheus import full, parse, render

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
SCORES = Scores(
    kind="validate", version=Version(incarnation=0, count=1), epoch=1.0, at_s=1.0, loss=1.0,
    metrics={"<metric>": 0.5}, train_loss=None,
)  # fmt: skip


def part(start: str, end: str) -> str:
    assert start in PAGE
    return PAGE.partition(start)[2].partition(end)[0]


def named(text: str) -> set[str]:
    """What the first cells of the tables' rows name."""
    heads = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for head in heads for name in re.findall(r"`([^`]+)`", head)}


def names_of(line: dict[str, object]) -> set[str]:
    return set(line) - {"kind"}


def test_every_kind_of_line_has_its_row() -> None:
    kinds = named(part("## `metrics.jsonl`", "The file grows"))
    status = a_status()
    lines = [
        metrics.training_line(status),
        metrics.volunteers_line(status, status.members),
        metrics.departure_line(status.departures[0]),
        metrics.setback_line(status),
        metrics.rate_line(status),
        metrics.restart_line(status),
        metrics.look_line(status, UNKNOWN),
        metrics.score_line(SCORES),
        metrics.score_line(replace(SCORES, kind="test")),
    ]
    assert kinds == {"kind", *(str(line["kind"]) for line in lines)}


def test_every_field_of_a_line_is_named() -> None:
    status = a_status()
    assert named(part("\n`training`:", "\n`volunteers`:")) == names_of(
        metrics.training_line(status)
    )
    line = metrics.volunteers_line(status, status.members)
    text = part("\n`volunteers`:", "\n`departure`,")
    assert named(text) == names_of(line)
    assert {f"`{name}`" for name in line["members"][0]} <= set(re.findall(r"`\w+`", text))  # type: ignore[index]
    told = named(part("\n`departure`, `setback`, `rate`, `restart`:", "\n`validate` and `test`:"))
    assert told == (
        names_of(metrics.departure_line(status.departures[0]))
        | names_of(metrics.setback_line(status))
        | names_of(metrics.rate_line(status))
        | names_of(metrics.restart_line(status))
    )
    text = part("\n`look`:", "[below]") + part("[below](#noise-in-labels),", "\n`validate` and")
    assert {*re.findall(r"`(\w+)`", text)} == names_of(metrics.look_line(status, UNKNOWN))
    text = part("\n`validate` and `test`:", "\n## TensorBoard")
    assert {*re.findall(r"`(\w+)`", text)} == names_of(metrics.score_line(SCORES))


def test_every_tag_is_named() -> None:
    scores = {
        **metrics.score_scalars(SCORES),
        **metrics.score_scalars(replace(SCORES, kind="test")),
    }
    tags = {*metrics.scalars(a_status()), *scores, "staleness/updates", "train/label_noise"}
    assert named(part("## TensorBoard", "## Prometheus")) == tags


def test_every_metric_is_named_with_its_type_and_labels() -> None:
    text = part("## Prometheus", "## The log")
    families = parse(render(full()))
    assert named(text) == set(families)
    for metric in METRICS:
        (row,) = [line for line in text.splitlines() if f"`{PREFIX}{metric.name}`" in line]
        _, kind, labels, _ = (cell.strip() for cell in row.strip("|").split("|"))
        told = {
            label
            for _, pairs in families[PREFIX + metric.name].samples
            for label, _ in pairs
        }  # fmt: skip
        assert kind == metric.kind
        assert set(re.findall(r"\w+", labels)) == told
    for each in MEMBER_METRICS:
        assert f"| `{PREFIX}{each.name}` | {each.kind} |" in text
    assert f"the {MAX_MEMBERS} volunteers" in text


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_reason_is_explained(kind: str) -> None:
    assert f"| `{kind}` |" in part("**Who came and went.**", "**After a restart**")


def test_every_field_of_the_log_is_named() -> None:
    try:
        raise ValueError
    except ValueError as error:
        trace = (ValueError, error, error.__traceback__)
    found = entry(a_record("x", fields={"a": 1}, exc_info=trace))
    assert named(part("## The log", "\0")) == set(found)
