"""Ranges: every batch of every epoch goes out exactly once, near where its data is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.work import Unit, UnitId, VolunteerId
from crowdgrad.planner.assignment import Piece
from crowdgrad.planner.batches import EpochPlans
from crowdgrad.planner.ranges import Ranges

ADA, BEN = VolunteerId("ada"), VolunteerId("ben")
SHARDS, RECORDS = (3, 7), (25, 10)


def ranges(*, epochs: int = 1, batch_sizes: tuple[int, ...] = (10,)) -> Ranges:
    return Ranges(
        EpochPlans(SHARDS, RECORDS, lambda epoch: batch_sizes[: epoch + 1][-1]),
        epochs=epochs,
        shard_order=lambda epoch: SHARDS if epoch % 2 == 0 else SHARDS[::-1],
    )


def unit(piece: Piece, number: int = 0) -> Unit:
    return Unit(
        id=UnitId(number),
        kind="train",
        epoch=piece.epoch,
        shard=piece.shard,
        first_batch=piece.first_batch,
        batches=piece.batches,
    )


def take(
    assignment: Ranges,
    batches: int = 1,
    holds: tuple[int, ...] = (),
    at_work: dict[int, int] | None = None,
    who: VolunteerId = ADA,
) -> tuple[Piece | None, str]:
    return assignment.next(who, batches=batches, holds=holds, at_work=at_work or {})


def test_pieces_stay_within_a_shard_and_cover_the_epoch() -> None:
    assignment = ranges()
    pieces = [take(assignment, batches=2)[0] for _ in range(3)]
    assert pieces == [
        Piece(epoch=0, shard=3, first_batch=0, batches=2),
        Piece(epoch=0, shard=3, first_batch=2, batches=1),
        Piece(epoch=0, shard=7, first_batch=3, batches=1),
    ]
    assert take(assignment) == (None, "the last 3 units are with others")
    for piece in pieces:
        assert piece is not None
        assert not assignment.finished
        assignment.closed(unit(piece), None, "done")
    assert assignment.finished
    assert take(assignment) == (None, "every unit is done")


def test_a_volunteer_gets_batches_of_a_shard_it_holds() -> None:
    piece, reason = take(ranges(), holds=(7,))
    assert piece is not None
    assert (piece.shard, reason) == (7, "of a shard you hold")


def test_newcomers_go_to_the_shard_with_the_fewest_at_work() -> None:
    assignment = ranges()
    first, reason = take(assignment, at_work={3: 2, 7: 1})
    assert first is not None
    assert (first.shard, reason) == (7, "of the shard with the fewest volunteers")
    second, _ = take(ranges(), at_work={7: 1})
    assert second is not None
    assert second.shard == 3


def test_people_spread_over_shards_and_go_on_where_they_are() -> None:
    assignment = ranges(epochs=2, batch_sizes=(10, 10))
    first, _ = take(assignment, holds=(3, 7))
    other, reason = take(assignment, holds=(3, 7), at_work={3: 1}, who=BEN)
    assert first is not None
    assert other is not None
    assert (first.shard, other.shard, reason) == (3, 7, "of a shard you hold")
    again, reason = take(assignment, holds=(3, 7), at_work={3: 1})
    assert again is not None
    assert (again.shard, reason) == (3, "of the shard you are at")
    assignment.members([BEN])  # who comes back begins anew
    anew, reason = take(assignment, holds=(3,))
    assert anew is not None
    assert reason == "of a shard you hold"


def test_the_end_of_an_epoch_is_no_barrier_and_every_epoch_has_its_order() -> None:
    assignment = ranges(epochs=2)
    pieces = [piece for _ in range(8) if (piece := take(assignment)[0])]
    assert [(piece.epoch, piece.first_batch) for piece in pieces] == [
        *((0, batch) for batch in (0, 1, 2, 3)),
        *((1, batch) for batch in (3, 0, 1, 2)),
    ]


def test_who_is_here_does_not_matter() -> None:
    assignment = ranges()
    assignment.members([])
    piece, _ = take(assignment)
    assert piece is not None
    assert piece.owner is None


def test_epochs_are_counted_in_samples() -> None:
    assignment = ranges(epochs=2, batch_sizes=(5, 20))
    assert assignment.epochs_done(35) == 1.0
    assert assignment.epochs_done(49) == 1.4


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 4), st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_every_batch_once_an_epoch_even_across_checkpoints(
    data: st.DataObject, epochs: int, sizes: list[int]
) -> None:
    assignment = ranges(epochs=epochs, batch_sizes=tuple(sizes))
    seen: Counter[tuple[int, int]] = Counter()
    waiting: list[Unit] = []
    while not assignment.finished:
        piece, _ = take(
            assignment,
            data.draw(st.integers(1, 4)),
            data.draw(st.sampled_from([(), (3,), (7,), (3, 7)])),
        )
        if piece is not None:
            waiting.append(unit(piece, len(seen)))
            for batch in range(piece.first_batch, piece.first_batch + piece.batches):
                seen[piece.epoch, batch] += 1
        if waiting and (piece is None or data.draw(st.booleans())):
            assignment.closed(
                waiting.pop(), None, data.draw(st.sampled_from(["done", "set_aside"]))
            )
        if data.draw(st.integers(0, 9)) == 0:
            state = assignment.snapshot()
            assignment = ranges(epochs=epochs, batch_sizes=tuple(sizes))
            assignment.restore(state, [(open_unit, None) for open_unit in waiting])
            assert assignment.snapshot() == state
    everything = [
        (epoch, batch)
        for epoch in range(epochs)
        for batch in range(assignment.plans.at(epoch).total)
    ]
    assert seen == Counter(everything)
