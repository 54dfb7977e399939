"""What every engine promises. A test module subclasses `EngineContract` and gives it engines.

Each promise is compared with a slow, obvious version: autograd on the module itself
(`capture.reference`), batch by batch, and the update rules of `numerics`. Two programs show
everything between them: `rich` (stored bytes, weights of samples, dropout, batch normalisation,
frozen parameters, a buffer that is only read) and `pair` (two losses for two groups of parameters,
random numbers in training and in evaluation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crowdgrad.capture.capture import Captured, capture
from crowdgrad.capture.holdings import look
from crowdgrad.capture.objective import Objective
from crowdgrad.capture.reference import Reference
from crowdgrad.capture.task import Task
from crowdgrad.capture.trusted import objective_of
from crowdgrad.domain.data import Field
from crowdgrad.domain.work import LocalRule, LocalSteps, Unit, UnitId
from crowdgrad.errors import ComputeError, DataMalformed, ProgramError
from crowdgrad.numerics.layout import StateLayout, is_floating, trained_parts
from crowdgrad.numerics.rules import OPTIMISERS, rule_from
from crowdgrad.numerics.rules.base import Step, begin
from crowdgrad.program.engines.base import Batch, Engine, UnitWork

SEED = 77
RATE = 0.05
NEAR = 1e-4


class Rich(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 9, bias=False)  # before a normalisation it would learn nothing
        self.norm = nn.BatchNorm1d(9)
        self.drop = nn.Dropout(0.25)
        self.last = nn.Linear(9, 5)
        self.last.bias.requires_grad_(False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 9))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.tanh(self.norm(self.first(x))) * self.scale))


class Pair(nn.Module):
    """A generator and its critic."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
        self.critic = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        made = self.maker(torch.randn(x.shape[0], 3, device=x.device))
        return made, self.critic(made), self.critic(made.detach()), self.critic(x)


def each_loss(scores: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(scores, label, reduction="none")


def pair_losses(out: tuple[Tensor, ...]) -> dict[str, Tensor]:
    _, for_maker, false, true = out
    critic = F.softplus(false).mean() + F.softplus(-true).mean()
    return {"maker": F.softplus(-for_maker).mean(), "critic": critic}


def rich_task() -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        x, y = torch.randn(6, 12), torch.tensor([0, 1, 2, 3, 4, 0])
        return Task(Rich(), each_loss, inputs=(x,), targets=(y,))


def pair_task() -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Task(Pair(), pair_losses, inputs=(torch.randn(6, 4),))


RICH_FIELDS = (
    Field(name="pixels", dtype="uint8", shape=(12,), mean=100.0, std=50.0),
    Field(name="label", dtype="uint8", shape=()),
    Field(name="weight", dtype="float32", shape=()),
)
PAIR_FIELDS = (Field(name="real", dtype="float32", shape=(4,)),)


@dataclass(frozen=True)
class Job:
    """A program with the task it came from; `task()` is a new one each time."""

    captured: Captured
    task: Callable[[], Task]
    fields: tuple[Field, ...]

    def objective(self) -> Objective:
        task = self.task()
        before = look(task.model)
        arrays = before.arrays()
        made = objective_of(task, before, self.fields)
        with torch.no_grad():  # trying it has changed its buffers
            for name, buffer in task.model.named_buffers():
                buffer.copy_(torch.from_numpy(arrays[name]))
        return made

    def reference(self) -> Reference:
        objective = self.objective()
        return Reference(objective, look(objective.model), self.captured.program.spec)


@pytest.fixture(scope="session")
def rich() -> Job:
    return Job(capture(rich_task(), RICH_FIELDS), rich_task, RICH_FIELDS)


@pytest.fixture(scope="session")
def pair() -> Job:
    return Job(capture(pair_task(), PAIR_FIELDS), pair_task, PAIR_FIELDS)


def batch(number: int, samples: int) -> Batch:
    random = np.random.default_rng(number)
    pixels = random.integers(0, 256, (samples, 12), dtype=np.uint8)
    labels = random.integers(0, 5, samples, dtype=np.uint8)
    weights = random.random(samples, dtype=np.float32) + np.float32(0.1)
    return Batch(number=number, fields=(pixels, labels, weights))


def real(number: int, samples: int) -> Batch:
    random = np.random.default_rng(number)
    return Batch(number=number, fields=(random.standard_normal((samples, 4), np.float32),))


def work(*batches: Batch, epoch: int = 2, **local) -> UnitWork:
    unit = Unit(
        id=UnitId(1), kind="train", epoch=epoch, shard=0, first_batch=batches[0].number,
        batches=len(batches),
    )  # fmt: skip
    steps = LocalSteps(batch_size=8, batches_per_unit=len(batches), **local)
    return UnitWork(unit=unit, local=steps, seed=SEED, batches=batches, rate=RATE)


def train(engine: Engine, job: Job, unit: UnitWork, state=None, update=None):
    state = job.captured.state if state is None else state
    if update is None:
        update = np.full(job.captured.program.spec.update_words, np.nan, np.float32)
    return engine.train(unit, state, update), update


def obvious(job: Job, unit: UnitWork, state=None):
    """Losses and update by autograd, a loop, and the rules' own equations."""
    spec, local = job.captured.program.spec, unit.local
    layout, reference = StateLayout(spec), job.reference()
    now = (job.captured.state if state is None else state).copy()
    weights = now[: spec.size]
    rule = rule_from(local.rule.name, local.rule.settings)
    memory, parts = begin(rule, spec.size), trained_parts(spec)
    grown = np.zeros(spec.update_words, np.float32)
    total, losses = np.zeros(spec.size, np.float32), []
    for one in unit.batches:
        result, update = train(reference, job, replace(unit, batches=[one]), now)
        gradient = update[: spec.size]
        losses.append(result.loss)
        if local.clip:
            gradient *= min(1.0, local.clip / (np.linalg.norm(gradient) + 1e-6))
        for part in parts or (slice(None),):
            gradient[part] += local.l2 * weights[part] + local.l1 * np.sign(weights[part])
        total += gradient
        rule.step(weights, gradient.copy(), memory, Step(rate=unit.rate, trained=parts))
        merge(layout, update, now, grown)
    grown[: spec.size] = weights if local.returns == "weights" else total
    return losses, grown


def merge(layout: StateLayout, update, state, returned) -> None:
    """Buffers go on from batch to batch; of counters, by how much they grew is returned."""
    for (tensor, new), (_, held), (_, out) in zip(
        layout.buffers(update), layout.buffers(state), layout.buffers(returned), strict=True
    ):
        if is_floating(tensor):
            held[...] = out[...] = new
        else:
            held += new
            out += new


def distance(job: Job, got, wanted) -> float:
    """The largest relative L2 distance of any gradient or buffer; counters must be the same."""
    layout, size = StateLayout(job.captured.program.spec), job.captured.program.spec.size
    worst = float(np.linalg.norm(got[:size] - wanted[:size]) / np.linalg.norm(wanted[:size]))
    for (tensor, one), (_, other) in zip(layout.buffers(got), layout.buffers(wanted), strict=True):
        if is_floating(tensor):
            worst = max(worst, float(np.linalg.norm(one - other) / np.linalg.norm(other)))
        else:
            assert np.array_equal(one, other), tensor.name
    return worst


class EngineContract:
    def make(self, job: Job) -> Engine:
        raise AssertionError("a subclass says which engine is tested")

    @pytest.fixture(autouse=True)
    def one_thread(self) -> Iterator[None]:
        before = torch.get_num_threads()
        torch.set_num_threads(1)  # for tensors as small as these, more of them only wait
        yield
        torch.set_num_threads(before)

    @pytest.fixture
    def engine(self, rich: Job) -> Engine:
        return self.make(rich)

    def agrees(self, engine: Engine, job: Job, unit: UnitWork) -> None:
        result, update = train(engine, job, unit)
        losses, wanted = obvious(job, unit)
        samples = [one.samples for one in unit.batches]
        assert distance(job, update, wanted) < NEAR
        assert result.loss == pytest.approx(np.average(losses, weights=samples), rel=NEAR)
        assert result.samples == sum(samples)
        assert result.metrics == {}

    @pytest.mark.parametrize("samples", [2, 3, 7, 64])
    def test_a_batch_gives_autograds_gradient(self, engine, rich, samples):
        self.agrees(engine, rich, work(batch(5, samples)))

    def test_a_unit_is_the_sum_of_gradients_along_local_steps(self, engine, rich):
        self.agrees(engine, rich, work(batch(3, 8), batch(4, 8), batch(5, 3)))

    @pytest.mark.parametrize("rule", OPTIMISERS)
    def test_replicas_step_by_every_rule(self, engine, rich, rule):
        batches = [batch(number, 8) for number in range(4)]
        self.agrees(engine, rich, work(*batches, rule=LocalRule(name=rule), returns="weights"))

    @pytest.mark.parametrize("returns", ["gradients", "weights"])
    def test_gradients_are_clipped_then_penalised(self, engine, rich, returns):
        batches = [batch(number, 8) for number in range(3)]
        rule = LocalRule(name="momentum", settings={"dampening": 0.2})
        self.agrees(
            engine, rich, work(*batches, rule=rule, returns=returns, clip=0.05, l1=1e-3, l2=1e-2)
        )

    def test_what_is_frozen_stays(self, engine, rich):
        unit = work(
            *(batch(n, 8) for n in range(3)), rule=LocalRule(name="adamw", settings={"decay": 0.5}),
            returns="weights", l2=0.1,
        )  # fmt: skip
        update = train(engine, rich, unit)[1]
        layout = StateLayout(rich.captured.program.spec)
        before = dict((t.name, v) for t, v in layout.tensors(rich.captured.state))
        for tensor, value in layout.parameters.views(update[: layout.size]):
            assert np.array_equal(value, before[tensor.name]) == (tensor.name == "last.bias")

    def test_a_chain_goes_on_where_the_lane_left_off(self, engine, rich):
        rule = LocalRule(name="adam")
        batches = [batch(number, 8) for number in range(6)]
        long = work(*batches, rule=rule, returns="weights")
        ways = ((0, 1), (1, -1))
        wanted = {lane: obvious(rich, replace(long, batches=batches[::w]))[1] for lane, w in ways}
        counted = {lane: 0 for lane, _ in ways}
        for number in range(3):  # two lanes in turns, through the same engine
            for lane, way in ways:
                part = work(*batches[::way][2 * number : 2 * number + 2], rule=rule, fetch_every=6)
                returns = "weights" if number == 2 else "gradients"
                link = replace(
                    part, lane=lane, fresh=number == 0, local=replace(part.local, returns=returns)
                )
                update = train(engine, rich, link)[1]
                counted[lane] += self.count(rich, update)
                if number == 2:
                    self.set_count(rich, update, counted[lane])
                    assert distance(rich, update, wanted[lane]) < NEAR

    def test_a_chain_without_a_beginning_is_an_error_and_the_engine_still_works(self, engine, rich):
        with pytest.raises(ComputeError, match="no replica"):
            train(engine, rich, replace(work(batch(0, 8), fetch_every=2), fresh=False))
        self.agrees(engine, rich, work(batch(0, 8)))

    def test_a_stretch_adds_to_those_before_it(self, engine, rich):
        first, second = (work(batch(n, 8), batch(n + 1, 5)) for n in (0, 2))
        moved = rich.captured.state * np.float32(1)
        moved[: rich.captured.program.spec.size] *= np.float32(0.9)  # parameters were fetched anew
        update = train(engine, rich, first)[1]
        train(engine, rich, replace(second, add=True), moved, update)
        (_, one), (_, other) = obvious(rich, first), obvious(rich, second, moved)
        size = rich.captured.program.spec.size
        wanted = other.copy()
        wanted[:size] += one[:size]
        self.set_count(rich, wanted, 4)
        assert distance(rich, update, wanted) < NEAR

    @staticmethod
    def count(job: Job, update) -> int:
        layout = StateLayout(job.captured.program.spec)
        (value,) = (v for t, v in layout.buffers(update) if not is_floating(t))
        return int(value)

    @staticmethod
    def set_count(job: Job, update, count: int) -> None:
        layout = StateLayout(job.captured.program.spec)
        (value,) = (v for t, v in layout.buffers(update) if not is_floating(t))
        value[...] = count

    def test_a_state_is_only_read(self, engine, rich):
        state = rich.captured.state.copy()
        state.flags.writeable = False
        train(engine, rich, work(batch(0, 4), batch(1, 4)), state)
        engine.evaluate(work(batch(0, 4)), state)
        assert np.array_equal(state.view(np.uint32), rich.captured.state.view(np.uint32))

    def test_the_same_unit_gives_the_same_bits(self, engine, rich):
        unit = work(batch(0, 8), batch(1, 5))
        first = train(engine, rich, unit)[1]
        engine.evaluate(unit, rich.captured.state)
        # Where an update has gaps between its buffers they stay as they were.
        assert np.array_equal(train(engine, rich, unit)[1], first, equal_nan=True)
        assert np.array_equal(train(self.make(rich), rich, unit)[1], first, equal_nan=True)

    def test_noise_follows_epoch_and_batch_number(self, engine, rich):
        one = batch(9, 8)
        update = train(engine, rich, work(one))[1]
        assert not np.array_equal(update, train(engine, rich, work(one, epoch=3))[1])
        other = replace(one, number=10)
        assert not np.array_equal(update, train(engine, rich, work(other))[1])

    def test_evaluation_is_a_mean_over_samples_without_noise(self, engine, rich):
        batches = [batch(1, 8), batch(2, 1)]
        result = engine.evaluate(work(*batches), rich.captured.state)
        alone = [rich.reference().evaluate(work(one), rich.captured.state) for one in batches]
        assert result.samples == 9
        assert result.loss == pytest.approx((8 * alone[0].loss + alone[1].loss) / 9, rel=NEAR)
        assert result.metrics.keys() == alone[0].metrics.keys() == {"accuracy"}
        right = (8 * alone[0].metrics["accuracy"] + alone[1].metrics["accuracy"]) / 9
        assert result.metrics["accuracy"] == pytest.approx(right, rel=NEAR)

    def test_predictions_are_the_models_outputs(self, engine, rich):
        (got,) = engine.predict(batch(3, 5), rich.captured.state)
        (wanted,) = rich.reference().predict(batch(3, 5), rich.captured.state)
        np.testing.assert_allclose(got, wanted, rtol=NEAR, atol=1e-5)

    def test_each_loss_teaches_its_own_group(self, pair):
        engine = self.make(pair)
        self.agrees(engine, pair, work(real(0, 1)))
        self.agrees(engine, pair, work(real(1, 8), real(2, 5), rule=LocalRule(name="adam")))

    def test_what_is_drawn_in_evaluation_follows_seed_and_batch(self, pair):
        engine, state, one = self.make(pair), pair.captured.state, real(4, 6)
        result = engine.evaluate(work(one), state)
        wanted = pair.reference().evaluate(work(one), state)
        assert result.loss == pytest.approx(wanted.loss, rel=NEAR)
        assert result.metrics == pytest.approx(wanted.metrics, rel=NEAR)
        made = engine.predict(one, state, SEED)
        for got, want in zip(made, pair.reference().predict(one, state, SEED), strict=True):
            np.testing.assert_allclose(got, want, rtol=NEAR, atol=1e-5)
        assert not np.array_equal(made[0], engine.predict(one, state, SEED + 1)[0])

    def test_what_is_not_finite_is_passed_on(self, engine, rich):
        state = rich.captured.state.copy()
        state[: rich.captured.program.spec.size] = np.nan
        result, update = train(engine, rich, work(batch(1, 4), batch(2, 4), clip=1.0), state)
        assert np.isnan(result.loss)
        assert np.isnan(update[: rich.captured.program.spec.size]).any()

    @pytest.mark.parametrize(
        "fields",
        [
            (np.zeros((4, 12), np.uint8), np.zeros(4, np.uint8)),
            (np.zeros((4, 12), np.float32), np.zeros(4, np.uint8), np.ones(4, np.float32)),
            (np.zeros((4, 11), np.uint8), np.zeros(4, np.uint8), np.ones(4, np.float32)),
            (np.zeros((4, 12), np.uint8), np.zeros(3, np.uint8), np.ones(4, np.float32)),
            (np.zeros((0, 12), np.uint8), np.zeros(0, np.uint8), np.ones(0, np.float32)),
            (np.zeros((12, 4), np.uint8).T, np.zeros(4, np.uint8), np.ones(4, np.float32)),
        ],
    )
    def test_batches_that_do_not_fit_are_refused(self, engine, rich, fields):
        with pytest.raises(DataMalformed):
            train(engine, rich, work(Batch(number=0, fields=fields)))

    def test_vectors_that_do_not_fit_are_refused(self, engine, rich):
        unit, good = work(batch(0, 4)), rich.captured.state.copy()
        update = train(engine, rich, unit)[1]
        for bad in (good[:-1], good.astype(np.float64), np.zeros(2 * good.size, np.float32)[::2]):
            with pytest.raises(DataMalformed):
                engine.train(unit, bad, update)
            with pytest.raises(DataMalformed):
                engine.train(unit, good, bad)
            with pytest.raises(DataMalformed):
                engine.evaluate(unit, bad)

    def test_a_label_out_of_range_is_an_error_with_the_batch_in_it(self, engine, rich):
        fields = (np.zeros((2, 12), np.uint8), np.full(2, 200, np.uint8), np.ones(2, np.float32))
        with pytest.raises(ProgramError, match="batch 31"):
            train(engine, rich, work(Batch(number=31, fields=fields)))
        self.agrees(engine, rich, work(batch(0, 2)))  # and the engine still works
