"""Checkpoints for tests: of real training, and made up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from crowdgrad.domain.job import Volunteer
from crowdgrad.domain.work import Unit, UnitId, Version, VolunteerId
from crowdgrad.host.course import CourseState, Ending
from crowdgrad.host.evaluation import Scores
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_files import Best
from crowdgrad.host.members.accounts import Credited
from crowdgrad.host.members.departures import Departure, DeparturesState
from crowdgrad.host.members.ledger import LedgerState
from crowdgrad.host.parameters import Saved
from crowdgrad.numerics.rules.base import Memory
from crowdgrad.planner.assignment import AssignmentState, Progress
from crowdgrad.planner.entries import KeptUnit
from crowdgrad.planner.leases import BookState
from crowdgrad.recipes.base import Recipe
from tests.host.people import stage


def told(checkpoint: Checkpoint | Best) -> Any:
    """Everything in it, comparable: NaN is NaN, and vectors are their bytes."""
    if isinstance(checkpoint, Best):
        return repr(checkpoint.scores), checkpoint.vector.tobytes()
    saved = checkpoint.saved
    vectors = {"": saved.vector, **saved.memory.vectors}
    return (
        repr(replace(checkpoint, saved=None)),  # type: ignore[arg-type]
        {name: vector.tobytes() for name, vector in vectors.items()},
        repr((saved.version, saved.memory.numbers, saved.memory.steps)),
    )


async def taken(recipe: Recipe, *, steps: int, people: int = 3, history: bool = True) -> Checkpoint:
    """Of a training in which so many units were done, one failed, and others are under way."""
    training, crowd = stage(recipe, people)
    for number in range(steps):
        assert await crowd[number % people].step() == "accepted"
    for person in crowd:
        await person.ask()
    unit = crowd[0].granted
    if unit is not None:
        training.give_back(1.0, crowd[0].account, unit.unit.id, "failed: too hot")
    training.leave(crowd[-1].account.volunteer.id, "left: tea time")
    checkpoint = await training.checkpoint(7.0)
    if not history:
        return checkpoint
    seen = tuple(scores(loss=loss, epoch=0.5 * at) for at, loss in enumerate([2.0, math.nan, 1.0]))
    course = replace(checkpoint.course, history=seen, best=seen[-1])
    return replace(checkpoint, course=course, train_loss=1.25)


def scores(loss: float = 1.0, accuracy: float = 0.5, epoch: float = 1.0) -> Scores:
    return Scores(
        kind="validate",
        version=Version(incarnation=0, count=3),
        epoch=epoch,
        at_s=2.5,
        loss=loss,
        metrics={"accuracy": accuracy},
        train_loss=None,
    )


def simple(
    incarnation: int = 1, count: int = 0, *, value: float = 0.0, size: int = 5
) -> Checkpoint:
    vector = np.full(size, value, np.float32)
    version = Version(incarnation=incarnation, count=count)
    return Checkpoint(
        saved=Saved(vector, Memory({}), version),
        book=BookState(
            next_id=0,
            waiting=(),
            set_aside=(),
            done_units=0,
            done_batches=0,
            done_samples=0,
            assignment=AssignmentState(progress=(Progress(who=None, epoch=-1, taken=()),)),
        ),
        ledger=LedgerState(),
        course=CourseState(),
    )


# -- made up ----------------------------------------------------------------------------------

COUNTS = st.integers(0, 1 << 61)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
WORDS = st.text(max_size=30)
IDS = st.text("0123456789abcdef", min_size=16, max_size=16).map(VolunteerId)
VERSIONS = st.builds(Version, incarnation=COUNTS, count=COUNTS)
SPANS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=4).map(tuple)
TALLIES = st.lists(st.tuples(WORDS, COUNTS), max_size=3).map(tuple)
SCORES = st.builds(
    Scores,
    kind=st.sampled_from(["validate", "test"]),
    version=VERSIONS,
    epoch=FLOATS,
    at_s=FLOATS,
    loss=FLOATS,
    metrics=st.dictionaries(WORDS, FLOATS, max_size=3),
    better=st.sampled_from(["higher", "lower"]),
    train_loss=st.none() | FLOATS,
)
ACCOUNTS = st.builds(
    Credited,
    volunteer=st.builds(
        Volunteer,
        id=IDS,
        name=st.sampled_from(["Ada", "Grażyna Ó", "毛 🦊", "Δ"]),
        cores=st.integers(1, 64),
        memory_mb=st.integers(0, 1 << 20),
        engine=st.just("onnx"),
        software=st.just("test"),
    ),
    position=COUNTS,
    own=st.booleans(),
    units=COUNTS,
    samples=COUNTS,
    credit=FLOATS,
    connected=st.booleans(),
    state=WORDS,
    refused=TALLIES,
    wait_s=FLOATS,
)
LEDGERS = st.builds(
    LedgerState,
    accounts=st.lists(
        ACCOUNTS, max_size=3, unique_by=(lambda a: a.volunteer.id, lambda a: a.position)
    ).map(tuple),
    next_position=COUNTS,
    refused=TALLIES,
    departures=st.builds(
        DeparturesState,
        arrivals=COUNTS,
        kinds=TALLIES,
        last=st.lists(
            st.builds(
                Departure,
                at_s=FLOATS,
                who=IDS,
                name=WORDS,
                reason=WORDS,
                stayed_s=FLOATS,
                samples=COUNTS,
            ),
            max_size=2,
        ).map(tuple),
    ),
)
COURSES = st.builds(
    CourseState,
    elapsed_s=st.floats(0, 1e9),
    history=st.lists(SCORES, max_size=3).map(tuple),
    best=st.none() | SCORES,
    tested=st.none() | SCORES,
    ending=st.none() | st.builds(Ending, state=st.just("finished"), reason=WORDS),
    paused=st.booleans(),
    begun=st.booleans(),
)


@st.composite
def books(draw: st.DrawFn) -> BookState:
    numbers = draw(st.lists(st.integers(0, 1 << 30), max_size=4, unique=True))
    kept = [
        KeptUnit(
            unit=Unit(
                id=UnitId(number),
                kind="train",
                epoch=draw(st.integers(0, 9)),
                shard=draw(st.integers(0, 9)),
                first_batch=draw(st.integers(0, 1 << 20)),
                batches=draw(st.integers(1, 1 << 16)),
            ),
            owner=draw(st.none() | IDS),
            failed_on=tuple(draw(st.lists(st.tuples(IDS, st.integers(1, 9)), max_size=2))),
            story=tuple(draw(st.lists(WORDS, min_size=2, max_size=3))),
        )
        for number in numbers
    ]
    cut = draw(st.integers(0, len(kept)))
    progress = st.builds(
        Progress, who=st.none() | IDS, epoch=st.integers(-1, 9), taken=SPANS, done=SPANS
    )
    return BookState(
        next_id=(1 << 30) + 1,
        waiting=tuple(kept[:cut]),
        set_aside=tuple(kept[cut:]),
        done_units=draw(COUNTS),
        done_batches=draw(COUNTS),
        done_samples=draw(COUNTS),
        assignment=AssignmentState(
            progress=tuple(draw(st.lists(progress, max_size=3))),
            ranked=tuple(draw(st.lists(IDS, max_size=3))),
        ),
    )


@st.composite
def made_up(draw: st.DrawFn) -> Checkpoint:
    size = draw(st.integers(0, 6))
    names = draw(st.lists(st.sampled_from(["mean", "square", "größe"]), max_size=3, unique=True))

    def vector(length: int) -> Any:
        bits = draw(st.lists(st.integers(0, (1 << 32) - 1), min_size=length, max_size=length))
        return np.array(bits, np.uint32).view(np.float32)

    memory = Memory(
        {name: vector(size) for name in names},
        draw(st.dictionaries(WORDS, st.floats(-1e9, 1e9), max_size=2)),
        draw(COUNTS),
    )
    return Checkpoint(
        saved=Saved(vector(size + draw(st.integers(0, 3))), memory, draw(VERSIONS)),
        book=draw(books()),
        ledger=draw(LEDGERS),
        course=draw(COURSES),
        setbacks=draw(COUNTS),
        starts=draw(COUNTS),
        staleness=tuple(draw(st.lists(st.tuples(COUNTS, COUNTS), max_size=3))),
        train_loss=draw(st.none() | FLOATS),
        metrics_bytes=draw(COUNTS),
    )
