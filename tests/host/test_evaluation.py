"""What an evaluation finds, which of two is better, and what a program of one batch size leaves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from crowdgrad.domain.program import Better, MetricSpec, ProgramSpec
from crowdgrad.domain.work import Unit, Update, Version, VolunteerId
from crowdgrad.host.evaluation import Evaluation, Scores
from crowdgrad.recipes.async_sgd import AsyncSGD
from tests.host import small

WORKER = VolunteerId("own")
VERSION = Version(incarnation=0, count=3)


def scores(loss: float, better: Better = "higher", **metrics: float) -> Scores:
    return Scores(kind="validate", version=VERSION, epoch=1.0, at_s=1.0, loss=loss,
                  metrics=metrics, better=better)  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "better"),
    [
        (scores(1.0, accuracy=0.9), scores(0.5, accuracy=0.8), True),
        (scores(1.0, accuracy=0.8), scores(0.5, accuracy=0.9), False),
        (scores(0.4, accuracy=0.9), scores(0.5, accuracy=0.9), True),
        (scores(1.0, "lower", perplexity=3.0), scores(0.5, "lower", perplexity=4.0), True),
        (scores(0.5, "lower", perplexity=4.0), scores(1.0, "lower", perplexity=3.0), False),
        (scores(0.4, "lower", error=1.0, accuracy=0.1), scores(0.5, "lower", error=1.0), True),
        (scores(0.5), scores(0.6), True),
        (scores(0.6), scores(0.5), False),
        (scores(math.nan, accuracy=1.0), scores(0.5, accuracy=0.1), False),
        (scores(0.4, accuracy=0.9, f1=math.nan), scores(0.5, accuracy=0.8, f1=0.2), True),
        (scores(0.4, accuracy=math.nan, f1=0.9), scores(0.5, accuracy=0.8, f1=0.2), False),
        (scores(0.1, "lower", perplexity=-math.inf), scores(0.5, "lower", perplexity=9.0), False),
    ],
)
def test_which_is_better(one: Scores, other: Scores, better: bool) -> None:
    assert one.better_than(other) is better


def spec(**changes: object) -> ProgramSpec:
    return replace(small.spec(), **changes)  # type: ignore[arg-type]


def evaluation(of: ProgramSpec, batch_size: int = 10) -> Evaluation:
    local = AsyncSGD(batch_size=batch_size).local()
    return Evaluation(small.manifest()[0], local=local, spec=of)


def leased(looking: Evaluation) -> list[Unit]:
    looking.begin("validate", np.zeros(3, np.float32), VERSION, 1.0, lease_s=9.0)
    units = []
    while (unit := looking.lease(0.0, WORKER)) is not None:
        units.append(unit)
    return units


def test_what_is_shown_is_made_of_the_mean_over_all_samples() -> None:
    perplexity = MetricSpec(name="perplexity", better="lower", of_mean="exp")
    rmse = MetricSpec(name="rmse", better="lower", of_mean="sqrt")
    looking = evaluation(spec(metrics=(perplexity, rmse)))
    (unit,) = leased(looking)
    update = Update(unit=unit.id, base=VERSION, samples=12, loss=1.0, compute_s=0.1,
                    metrics={"perplexity": 2.0, "rmse": 9.0})  # fmt: skip
    assert looking.finish(update, WORKER) == "accepted"
    found = looking.take_scores(1.0, None)
    assert found is not None
    assert found[0].metrics == pytest.approx({"perplexity": math.exp(2), "rmse": 3.0})
    assert found[0].better == "lower"


def test_a_program_of_one_batch_size_leaves_the_rest_of_a_split_out() -> None:
    """12 validation records: one batch of 10, and two records that fill none."""
    (unit,) = leased(evaluation(spec(fixed_batch=10)))
    assert (unit.first_batch, unit.batches) == (0, 1)
    (unit,) = leased(evaluation(spec()))
    assert unit.batches == 2
    assert evaluation(spec(fixed_batch=12), batch_size=12).has("validate")
    assert not evaluation(spec(fixed_batch=13), batch_size=13).has("validate")
