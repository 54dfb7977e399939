"""Questions by HTTP: jobs, keys, and what is kept about the caller."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from crowdgrad.domain.job import JobId
from crowdgrad.matchmaker import people
from crowdgrad.matchmaker.api.answers import answer, signer
from crowdgrad.matchmaker.desk import Desk
from crowdgrad.matchmaker.doorkeeper import Doorkeeper
from crowdgrad.matchmaker.openapi import describe
from crowdgrad.matchmaker.refusal import nonsense
from crowdgrad.matchmaker.room import Room
from crowdgrad.matchmaker.telling import Telling
from crowdgrad.net import rooms
from crowdgrad.store.base import Store

MAX_LISTED = 500
SIGNED = (400, 401, 413, 429, 503)
"""What a signed request may be refused with."""


def v1(room: Room, desk: Desk, store: Store, doorkeeper: Doorkeeper, tell: Telling) -> APIRouter:
    router = APIRouter(prefix="/v1")
    _jobs(router, room, desk, store, doorkeeper)
    _keys(router, room, store, doorkeeper, tell)
    return router


def _jobs(router: APIRouter, room: Room, desk: Desk, store: Store, doorkeeper: Doorkeeper) -> None:
    @router.get(
        "/jobs",
        **describe("Public jobs that need help, the oldest first.", rooms.JobList, refuses=(429,)),
    )
    async def list_jobs() -> Response:
        wanted = room.in_public(store.jobs())
        jobs = tuple(room.summary(record) for record in wanted[:MAX_LISTED])
        return answer(rooms.JobList(jobs=jobs, total=len(wanted)))

    @router.get(
        "/jobs/{job_or_code}",
        **describe("One job, by its id or its code.", rooms.JobSummary, refuses=(404, 429)),
    )
    async def show_job(job_or_code: str) -> Response:
        return answer(room.summary(desk.find_job(job_or_code)))

    @router.delete(
        "/jobs/{job_id}",
        **describe(
            "Withdraw a job of yours: its members are told, and it is forgotten.",
            rooms.Forgotten, refuses=(*SIGNED, 403, 404), signed=True,
        ),
    )  # fmt: skip
    async def withdraw(request: Request, job_id: str) -> Response:
        room.withdraw(await signer(request, doorkeeper), JobId(job_id))
        await store.kept()
        return answer(rooms.Forgotten(entries=1))


def _keys(
    router: APIRouter, room: Room, store: Store, doorkeeper: Doorkeeper, tell: Telling
) -> None:
    @router.get(
        "/keys/{key_id}",
        **describe("What a key gave, and what its jobs were given.", rooms.KeySummary,
                   refuses=(400, 429)),
    )  # fmt: skip
    async def show_key(key_id: str) -> Response:
        return answer(people.summary(store, checked_key(key_id)))

    @router.get("/totals", **describe("What was given in all.", rooms.TotalsBody, refuses=(429,)))
    async def show_totals() -> Response:
        return answer(people.totals(store))

    @router.get(
        "/me",
        **describe("Everything that is kept about you.", rooms.Kept, refuses=SIGNED, signed=True),
    )
    async def show_me(request: Request) -> Response:
        return answer(people.kept(store, await signer(request, doorkeeper)))

    @router.delete(
        "/me",
        **describe(
            "Forget everything about you; open sockets are closed.",
            rooms.Forgotten, refuses=SIGNED, signed=True,
        ),
    )  # fmt: skip
    async def forget_me(request: Request) -> Response:
        key = await signer(request, doorkeeper)
        room.forget(key)
        gone = people.forget(store, key)
        await store.kept()
        tell("forgotten", entries=gone.entries)
        return answer(gone)


def checked_key(key_id: str) -> str:
    """Raises Refusal."""
    if len(key_id) != 16 or any(c not in "0123456789abcdef" for c in key_id):
        raise nonsense("A key's id has 16 hexadecimal digits.")
    return key_id
