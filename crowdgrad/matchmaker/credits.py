"""Who gave what: reported by hosts, countersigned by volunteers.

A volunteer that is matched with a job has an account there. The host reports what each has given in
all; others than those we sent it cannot be credited. The volunteer is asked to sign the same, and
what both say counts as agreed. It is the volunteer's, and outlives the job; titles are remembered
of public jobs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from crowdgrad.domain.job import JobId
from crowdgrad.domain.matching import NOTHING, Credit, JobRecord, VolunteerRecord
from crowdgrad.domain.work import VolunteerId
from crowdgrad.matchmaker.refusal import nonsense
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import signed_by
from crowdgrad.net.signing import credit_text
from crowdgrad.store.base import Store

MOST = 1_000_000
"""Accounts; they are all in memory."""
OFFERED_AT_ONCE = 20
"""To a volunteer that comes back, the latest first."""


def open_account(store: Store, record: JobRecord, volunteer: VolunteerId, now: float) -> None:
    """It has been sent to this job. An account with another host, of the same job id, stays."""
    if store.credit(record.listing.id, volunteer) is None and store.count_credits() < MOST:
        store.put_credit(
            Credit(
                job=record.listing.id,
                title=record.listing.title if record.listing.offer.visibility == "public" else "",
                host=record.listing.offer.key,
                volunteer=volunteer,
                reported=NOTHING,
                reported_at=now,
            )
        )


def close_accounts(store: Store, record: JobRecord) -> None:
    """The job is forgotten, and with it the accounts of those who gave nothing."""
    for credit in store.received(record.listing.offer.key):
        if credit.job == record.listing.id and credit.reported == NOTHING and not credit.signed:
            store.forget_credit(credit.job, credit.volunteer)


def report(
    store: Store, record: JobRecord, message: rooms.Credited, now: float
) -> Iterator[Credit]:
    """Remember what a host says; yields what is new."""
    gifts = {VolunteerId(gave.volunteer): gave.gift.gift() for gave in message.gifts}
    for who, gift in gifts.items():
        known = store.credit(record.listing.id, who)
        if known is None or known.host != record.listing.offer.key or known.reported == gift:
            continue
        credit = replace(known, reported=gift, reported_at=now)
        store.put_credit(credit)
        yield credit


def countersign(store: Store, record: VolunteerRecord, message: rooms.CreditSigned) -> None:
    """Raises Refusal for a signature that is none, or a job it gave nothing to."""
    credit = store.credit(JobId(message.job), record.id)
    if credit is None:
        raise nonsense(f"Nobody has reported that you gave anything to job {message.job!r}.")
    gift = message.gift.gift()
    text = credit_text(credit.job, credit.host, record.id, gift)
    if not signed_by(bytes.fromhex(record.owner), text, bytes.fromhex(message.signature)):
        raise nonsense(f"What you gave to job {message.job!r} is not signed with your key.")
    store.put_credit(replace(credit, signed=gift, signature=message.signature))


def unsigned(store: Store, volunteer: VolunteerId) -> list[Credit]:
    """What it may still want to sign."""
    given = (credit for credit in store.gave(volunteer) if credit.reported != NOTHING)
    return [credit for credit in given if not credit.agreed][:OFFERED_AT_ONCE]


def offered(credit: Credit) -> rooms.CreditOffered:
    return rooms.CreditOffered(
        job=credit.job,
        title=credit.title,
        host=credit.host,
        gift=bodies.GiftBody.of(credit.reported),
    )
