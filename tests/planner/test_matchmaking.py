"""First in, first out: nobody twice, no job too full, and a reason for everyone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import MAX_ROSTER, JobId, JobState, Member
from crowdgrad.domain.matching import CODE_ALPHABET, Code, JobListing, Offer, Presence, Waiting
from crowdgrad.domain.work import VolunteerId
from crowdgrad.planner.matchmaking import Decision, Opening, Patience, match, place, presence


def opening(
    number: int = 0,
    *,
    members: int = 0,
    minimum: int = 0,
    maximum: int = 8,
    state: JobState = "waiting",
    host: Presence = "alive",
    at: float | None = None,
    places: int = 0,
) -> Opening:
    offer = Offer(
        id=JobId(f"job-{number}"),
        title=f"j{number}",
        cause="",
        address="h:1",
        key="",
        minimum=minimum,
        maximum=maximum,
        hyperparameters={},
    )
    listing = JobListing(
        offer=offer,
        state=state,
        published_at=float(number) if at is None else at,
        code=Code(f"AAA-AA{CODE_ALPHABET[number]}"),
    )
    return Opening(listing=listing, presence=host, members=members, places=places)


def waiting(
    number: int, *, wants: str | None = None, avoid: tuple[str, ...] = (), since: float = 0.0
) -> Waiting:
    jobs = frozenset(JobId(job) for job in avoid)
    return Waiting(volunteer=VolunteerId(f"v{number:03}"), wants=wants, avoid=jobs, since=since)


openings_st = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from(["waiting", "running", "finished", "stopped", "failed"]),
        st.sampled_from(["alive", "alive", "suspect", "gone"]),
        st.integers(0, 2),
    ),
    max_size=5,
).map(
    lambda rows: [
        opening(n, members=m, minimum=lo, maximum=max(1, lo + extra), state=s, host=h, at=float(t))
        for n, (m, lo, extra, s, h, t) in enumerate(rows)
    ]
)
names_st = st.sampled_from([None, None, None, "job-0", "job-1", "aaaaa2", "AAA-AA3", "nowhere"])
waiting_st = st.lists(
    st.tuples(
        names_st,
        st.lists(st.sampled_from(["job-0", "job-1", "job-2"]), max_size=2),
        st.integers(0, 3),
    ),
    max_size=12,
).map(
    lambda rows: [
        waiting(n, wants=w, avoid=tuple(a), since=float(t)) for n, (w, a, t) in enumerate(rows)
    ]
)


def named(wants: str, openings: list[Opening]) -> JobId | None:
    for o in openings:
        if wants == o.listing.id or wants.upper().replace("-", "") == o.listing.code.replace(
            "-", ""
        ):
            return o.listing.id
    return None


@settings(max_examples=150, deadline=None)
@given(waiting_st, openings_st)
def test_what_always_holds(queue: list[Waiting], openings: list[Opening]) -> None:
    decisions = match(queue, openings)
    asked = {w.volunteer: w for w in queue}
    jobs = {o.listing.id: o for o in openings}
    order = [(asked[d.volunteer].since, d.volunteer) for d in decisions]
    assert order == sorted((w.since, w.volunteer) for w in queue), "everyone once, by arrival"
    sent = Counter(d.job for d in decisions if d.job is not None)
    for job, count in sent.items():
        o = jobs[job]
        assert o.listing.open
        assert o.presence == "alive"
        assert o.members + count <= o.listing.offer.maximum
    for d in decisions:
        w = asked[d.volunteer]
        assert d.reason
        assert d.job is not None or d.reason.startswith("waiting: ")
        assert d.job not in w.avoid
        if w.wants is not None and d.job is not None:
            assert d.job == named(w.wants, openings)


@settings(max_examples=150, deadline=None)
@given(waiting_st, openings_st)
def test_first_in_first_out_among_equals(queue: list[Waiting], openings: list[Opening]) -> None:
    decisions = match(queue, openings)
    asked = {w.volunteer: w for w in queue}
    left_waiting: set[tuple[str | None, frozenset[JobId]]] = set()
    for d in decisions:
        kind = (asked[d.volunteer].wants, asked[d.volunteer].avoid)
        if d.job is None:
            left_waiting.add(kind)
        else:
            assert kind not in left_waiting, "somebody who wants the same was here earlier"


@settings(max_examples=150, deadline=None)
@given(waiting_st, openings_st)
def test_nobody_waits_in_vain(queue: list[Waiting], openings: list[Opening]) -> None:
    """Whoever waits after the pass could not be placed anywhere they would go."""
    decisions = match(queue, openings)
    sent = Counter(d.job for d in decisions)
    asked = {w.volunteer: w for w in queue}
    roomy = {
        o.listing.id
        for o in openings
        if o.listing.open
        and o.presence == "alive"
        and o.members + sent[o.listing.id] < o.listing.offer.maximum
    }
    for d in decisions:
        if d.job is None:
            w = asked[d.volunteer]
            would = roomy if w.wants is None else {named(w.wants, openings)} & roomy
            assert not would - w.avoid


def only(decisions: tuple[Decision, ...]) -> Decision:
    assert len(decisions) == 1
    return decisions[0]


def test_a_job_that_lacks_its_minimum_goes_before_an_older_one_with_room() -> None:
    jobs = [opening(0, members=2, minimum=2), opening(1, members=1, minimum=2)]
    decisions = match([waiting(0), waiting(1)], jobs)
    assert [d.job for d in decisions] == ["job-1", "job-0"]
    assert decisions[0].reason == "job j1 needs 2 volunteers and had 1"
    assert decisions[1].reason == "job j0 has room (2 of 8)"


def test_the_oldest_job_is_served_first() -> None:
    jobs = [opening(0, at=5.0, minimum=1), opening(1, at=4.0, minimum=1)]
    assert [d.job for d in match([waiting(0), waiting(1)], jobs)] == ["job-1", "job-0"]


@pytest.mark.parametrize(
    ("volunteer", "jobs", "reason"),
    [
        (waiting(0), [], "waiting: no job is open"),
        (waiting(0), [opening(0, state="finished")], "waiting: no job is open"),
        (waiting(0), [opening(0, host="gone")], "waiting: no job is open"),
        (waiting(0), [opening(0, members=8)], "waiting: job j0 is full (8 of 8)"),
        (
            waiting(0),
            [opening(0, members=8), opening(1, members=9)],
            "waiting: all 2 open jobs are full",
        ),
        (
            waiting(0, avoid=("job-0",)),
            [opening(0)],
            "waiting: no job has room besides those you left",
        ),
        (waiting(0, wants="x"), [opening(0)], "waiting: nobody has published a job called x"),
        (
            waiting(0, wants="job-0"),
            [opening(0, state="stopped"), opening(1)],
            "waiting: job j0 is over (stopped)",
        ),
        (
            waiting(0, wants="job-0"),
            [opening(0, host="suspect")],
            "waiting: the host of job j0 does not answer",
        ),
        (
            waiting(0, wants="job-0"),
            [opening(0, places=MAX_ROSTER)],
            f"waiting: job j0 has given away all its {MAX_ROSTER} places",
        ),
        (waiting(0, wants="job-0", avoid=("job-0",)), [opening(0)], "waiting: you left job j0"),
    ],
)
def test_waiting_has_a_reason(volunteer: Waiting, jobs: list[Opening], reason: str) -> None:
    decision = only(match([volunteer], jobs))
    assert (decision.job, decision.reason) == (None, reason)


def test_a_code_is_found_however_it_is_typed() -> None:
    for typed in ("AAA-AA2", "aaaaa2", "aaa aa2"):
        assert only(match([waiting(0, wants=typed)], [opening(0)])).job == "job-0"


@given(st.lists(st.integers(0, 8), max_size=40))
def test_places_are_unique_and_stable(arrivals: list[int]) -> None:
    members: dict[VolunteerId, Member] = {}
    next_position = 1
    for number in arrivals:
        volunteer = VolunteerId(f"v{number}")
        member, reason = place(members.get(volunteer), next_position, volunteer, "name")
        assert reason
        assert members.setdefault(volunteer, member) == member, "a place stays its owner's"
        next_position = max(m.position for m in members.values()) + 1
    positions = [m.position for m in members.values()]
    assert sorted(positions) == list(range(1, len(members) + 1))


def test_silence_makes_suspect_then_gone() -> None:
    patience = Patience(suspect_after_s=3, gone_after_s=10)
    assert presence(0.0, True, patience)[0] == "alive"
    assert presence(0.0, False, patience)[0] == "suspect"
    assert presence(3.0, True, patience)[0] == "suspect"
    assert presence(10.0, True, patience) == ("gone", "silent for 10 s")
    assert presence(10.0, False, patience)[0] == "gone"
    with pytest.raises(ValueError, match="suspect after"):
        Patience(suspect_after_s=11, gone_after_s=10)
