"""Taking a status: what a training is and does now, told in the words of `Status`.

It is taken ten times a second on the host's loop, so it must not cost more where there are more
members: totals are kept up by the ledger, and only so many members are named.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from operator import attrgetter, mul

from crowdgrad.domain.job import JobState
from crowdgrad.host.keeping.keeper import Health
from crowdgrad.host.members.accounts import Contribution
from crowdgrad.host.members.ledger import Ledger
from crowdgrad.host.state import State
from crowdgrad.host.telling.status import (
    CheckpointStatus,
    MemberStatus,
    Others,
    StalenessBucket,
    Status,
    TimeSplit,
    point,
)
from crowdgrad.host.telling.swarm_status import SpreadSummary
from crowdgrad.host.training import Training

SHOWN_MEMBERS = 100
"""Members that a status names."""
SHOWN_DEPARTURES = 20


def take_status(
    training: Training,
    now: float,
    checkpoint: CheckpointStatus | None = None,
    *,
    most: int | None = SHOWN_MEMBERS,
    spreading: SpreadSummary | None = None,
) -> Status:
    """`most`: how many members are named; None: everybody, which takes long where they are many."""
    ledger, ending = training.ledger, training.course.ending
    staleness = training.state.staleness
    state: JobState = "waiting" if training.course.started_at is None else "running"
    members = members_of(training, shown(ledger, most), now)
    received, sent = ledger.bytes_received, ledger.bytes_sent
    return Status(
        job=training.job.id,
        title=training.job.title,
        recipe=training.job.recipe,
        phase=training.course.phase,
        state=ending.state if ending and training.course.phase == "over" else state,
        reason=ending.reason if ending else "",
        paused=training.course.paused,
        elapsed_s=training.course.elapsed_s(now),
        progress=training.progress(now),
        epochs_done=training.book.epochs_done,
        epochs=training.job.stop.epochs,
        version=str(training.parameters.version),
        updates=ledger.total_updates,
        samples=ledger.total_samples,
        refused=ledger.total_refused,
        ignored=ledger.total_ignored,
        setbacks=training.state.setbacks,
        notice=" ".join(filter(None, _said(training.state))),
        learning_rate=training.state.rate,
        backup_bytes=training.parameters.backup_bytes,
        set_aside=len(training.book.set_aside),
        samples_per_s=ledger.samples.rate(now),
        updates_per_s=ledger.updates.rate(now),
        mean_staleness=_mean(sum(map(mul, staleness, staleness.values())), staleness.total()),
        max_staleness=max(staleness, default=0),
        train_loss=training.state.train_loss,
        validation=point(training.course.history[-1] if training.course.history else None),
        best=point(training.course.best),
        test=point(training.course.tested),
        metric=training.spec.metrics[0].name if training.spec.metrics else None,
        better=training.spec.metrics[0].better if training.spec.metrics else "lower",
        members=members,
        others=_others(ledger, members),
        resumed=training.state.starts - 1,
        rate_factor=training.state.rate_factor,
        checkpoint=checkpoint,
        staleness=buckets(staleness),
        refused_by_reason=_counts(ledger.refused),
        ignored_by_reason=_counts(ledger.ignored),
        bytes_received=received,
        bytes_sent=sent,
        bytes_received_per_s=ledger.received.rate(now, received),
        bytes_sent_per_s=ledger.sent.rate(now, sent),
        times=_split(ledger.sums.compute_s, ledger.sums.exchange_s, ledger.sums.waited_s(now)),
        arrivals=ledger.departures.arrivals,
        departures_by_kind=_counts(ledger.departures.kinds),
        departures=ledger.departures.last(SHOWN_DEPARTURES),
        train_records=training.state.train_records,
        growing=training.job.growing,
        growths=training.state.growths,
        label_noise=training.course.looking.noise if training.course.looking else None,
        spreading=spreading,
    )


def _said(state: State) -> tuple[str, ...]:
    return state.notice, state.warning, state.data_warning


def shown(ledger: Ledger, most: int | None) -> list[Contribution]:
    """Whom a status names, in roster order: who is here, then who has gone, the busiest first."""
    everyone = ledger.everyone()
    if most is None or len(everyone) <= most:
        return everyone
    here = ledger.connected()
    chosen = _busiest(most, here)
    if len(chosen) < most:
        gone = [account for account in everyone if not account.connected]
        chosen = chosen + _busiest(most - len(chosen), gone)
    return sorted(chosen, key=attrgetter("position"))


def _busiest(most: int, accounts: list[Contribution]) -> list[Contribution]:
    if len(accounts) <= most:
        return accounts
    return heapq.nlargest(most, accounts, key=attrgetter("samples"))


def members_of(
    training: Training, accounts: Iterable[Contribution], now: float
) -> list[MemberStatus]:
    total = training.ledger.total_samples
    return [_member(account, total, now) for account in accounts]


def _others(ledger: Ledger, named: list[MemberStatus]) -> Others:
    rest = len(ledger.everyone()) - len(named)
    if rest == 0:
        return Others()
    samples = ledger.total_samples - sum(member.samples for member in named)
    return Others(
        members=rest,
        connected=len(ledger.connected()) - sum(member.connected for member in named),
        units=ledger.total_updates - sum(member.units for member in named),
        samples=samples,
        share=_mean(samples, ledger.total_samples),
        credit=ledger.credit_of(samples),
    )


def checkpoint_status(health: Health, now: float) -> CheckpointStatus:
    return CheckpointStatus(
        version=str(health.version) if health.version is not None else None,
        age_s=max(0.0, now - health.at) if health.at is not None else None,
        bytes=health.bytes,
        written=health.written,
        trouble=health.trouble,
    )


def _member(account: Contribution, total: int, now: float) -> MemberStatus:
    return MemberStatus(
        position=account.position,
        id=account.volunteer.id,
        name=account.volunteer.name,
        connected=account.connected,
        state=account.state,
        units=account.units,
        samples=account.samples,
        share=_mean(account.samples, total),
        credit=account.credit,
        samples_per_s=account.speed.rate(now) if account.connected else 0.0,
        mean_staleness=_mean(account.staleness_sum, account.units),
        refused=sum(account.refused.values()),
        ignored=account.ignored,
        max_staleness=account.staleness_max,
        refused_by_reason=_counts(account.refused),
        ignored_by_reason=_counts(account.ignored_for),
        bytes_received=account.bytes_received,
        bytes_sent=account.bytes_sent,
        times=_split(
            account.times.compute_s, account.times.exchange_s, account.times.waited_s(now)
        ),
        cores=account.volunteer.cores,
        memory_mb=account.volunteer.memory_mb,
        engine=account.volunteer.engine,
    )


def _split(compute_s: float, exchange_s: float, wait_s: float) -> TimeSplit:
    total = compute_s + exchange_s + wait_s
    return TimeSplit(
        compute_s=compute_s,
        exchange_s=exchange_s,
        wait_s=wait_s,
        compute_share=_mean(compute_s, total),
        exchange_share=_mean(exchange_s, total),
        wait_share=_mean(wait_s, total),
    )


def buckets(staleness: Mapping[int, int]) -> list[StalenessBucket]:
    """0, 1, 2, 3-4, 5-8, …: each twice as wide, as far as there is any."""
    if not staleness:
        return []
    counts = [0] * (_bucket(max(staleness)) + 1)
    for value, updates in staleness.items():  # a crowd's are thousands: no call for each
        counts[(value - 1).bit_length() + 1 if value else 0] += updates
    found: list[StalenessBucket] = []
    least = most = 0
    for updates in counts:
        found.append(StalenessBucket(least=least, most=most, updates=updates))
        least, most = most + 1, max(1, 2 * most)
    return found


def _bucket(value: int) -> int:
    return (value - 1).bit_length() + 1 if value else 0


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent first."""
    if not counts:  # of most members there is nothing to count, many times a second
        return {}
    return dict(sorted(((w, n) for w, n in counts.items() if n), key=lambda pair: -pair[1]))


def _mean(total: float, count: float) -> float:
    return total / count if count else 0.0
