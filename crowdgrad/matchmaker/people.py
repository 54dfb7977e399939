"""What is kept about a key: shown to its owner, told in part to everybody, and forgotten on demand.

What forgetting does, row by row:

    its volunteer record                    gone
    its places in rosters                   the name goes; the position is never given again
    what it gave                            gone, countersigned or not
    the jobs it published                   gone, and their rosters with them
    what was given to its jobs, unsigned    gone: only its own word ever stood behind it
    … countersigned by the volunteer        stays the volunteer's, without the host and the title

The signature of the last kind stays valid: whoever still knows which host it was can check it. Not
touched is what others say of themselves and that names the key: a job's list of the invited, a
volunteer's list of hosts it trusts. These go with their owners.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from crowdgrad.domain.matching import Credit, VolunteerRecord
from crowdgrad.domain.work import VolunteerId
from crowdgrad.net import bodies, rooms
from crowdgrad.net.identity import id_of
from crowdgrad.store.base import Store

MAX_ROWS = 200
"""Of each kind that are shown to everybody; the sums count all of them."""
UNLISTED = "unlisted"
"""Stands for the id of a job that is not public, where everybody can read it."""
NOT_KEPT = "not-kept"
"""Stands for the session of a registration: it is never written down."""


def kept(store: Store, key: str) -> rooms.Kept:
    """Everything about a public key (hexadecimal digits), for its owner."""
    who = _id_of(key)
    record = _record_of(store, key)
    return rooms.Kept(
        key=who,
        registered=None if record is None else _registered(record),
        since=None if record is None else record.since,
        places=tuple(
            rooms.PlaceKept(job=job, position=member.position, name=member.name)
            for job, member in store.places(who)
        ),
        jobs=tuple(bodies.OfferBody.of(record.listing.offer) for record in store.jobs_of(key)),
        gave=tuple(_credit(credit) for credit in store.gave(who)),
        received=tuple(_credit(credit) for credit in store.received(who)),
    )


def summary(store: Store, key_id: str) -> rooms.KeySummary:
    """What everybody may know of a key, by its id: what both sides have signed. Of jobs that are
    not public only the amounts are told, and not by whom they were given."""
    gave = [credit for credit in store.gave(VolunteerId(key_id)) if credit.signed is not None]
    received = [
        credit
        for credit in store.received(key_id)
        if credit.signed is not None and _is_public(store, credit)
    ]
    return rooms.KeySummary(
        key=key_id,
        gave=tuple(_shown(store, credit) for credit in gave[:MAX_ROWS]),
        received=tuple(_credit(credit) for credit in received[:MAX_ROWS]),
        flop=sum(credit.sure.flop for credit in gave),
    )


def totals(store: Store) -> rooms.TotalsBody:
    found = store.totals()
    return rooms.TotalsBody(
        volunteers=found.volunteers, jobs=found.jobs, samples=found.samples, flop=found.flop
    )


def forget(store: Store, key: str) -> rooms.Forgotten:
    """Forget a public key as the module's table says; how many entries are gone or changed."""
    who = _id_of(key)
    entries = 0
    if _record_of(store, key) is not None:
        store.forget_volunteer(who)
        entries += 1
    for record in store.jobs_of(key):
        store.forget_job(record.listing.id)
        entries += 1
    for job, _ in store.places(who):
        store.forget_member(job, who)
        entries += 1
    for credit in store.gave(who):
        store.forget_credit(credit.job, who)
        entries += 1
    for credit in store.received(who):
        _forget_host(store, credit)
        entries += 1
    return rooms.Forgotten(entries=entries)


def _forget_host(store: Store, credit: Credit) -> None:
    if credit.signed is None:
        store.forget_credit(credit.job, credit.volunteer)
    else:
        store.put_credit(replace(credit, host="", title=""))


def _id_of(key: str) -> VolunteerId:
    return id_of(bytes.fromhex(key))


def _record_of(store: Store, key: str) -> VolunteerRecord | None:
    """An id is short: only the whole key proves that a record is its own."""
    record = store.volunteer(_id_of(key))
    return record if record is not None and record.owner == key else None


def _registered(record: VolunteerRecord) -> rooms.Register:
    return rooms.Register(
        volunteer=bodies.VolunteerBody.of(record.volunteer),
        session=NOT_KEPT,
        machine=bodies.MachineBody.of(record.machine),
        wants=bodies.WantsBody.of(record.wants),
        avoid=tuple(sorted(record.avoid)),
        working_for=record.job,
    )


def _credit(credit: Credit) -> rooms.CreditBody:
    return rooms.CreditBody(
        job=credit.job,
        title=credit.title,
        host=credit.host,
        volunteer=credit.volunteer,
        reported=bodies.GiftBody.of(credit.reported),
        reported_at=credit.reported_at,
        agreed=credit.agreed,
        signed=None if credit.signed is None else bodies.GiftBody.of(credit.signed),
        signature=credit.signature,
    )


def _shown(store: Store, credit: Credit) -> rooms.CreditBody:
    body = _credit(credit)
    if _is_public(store, credit):
        return body
    # The signature goes, too: it names the job, so whoever guesses that could check the guess.
    return msgspec.structs.replace(body, job=UNLISTED, title="", host="", signature="")


def _is_public(store: Store, credit: Credit) -> bool:
    """A job that is forgotten by now was public if its credit has a title."""
    record = store.job(credit.job)
    if record is not None and record.listing.offer.visibility != "public":
        return False
    return credit.title != ""
