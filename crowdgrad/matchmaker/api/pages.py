"""Pages for people: what this is, one job, one key, what is kept."""

from __future__ import annotations

from fastapi import APIRouter, Response

from crowdgrad import webapp
from crowdgrad.domain.matching import JobRecord
from crowdgrad.errors import TargetError
from crowdgrad.matchmaker import pages, people
from crowdgrad.matchmaker.api.answers import SAFE, page
from crowdgrad.matchmaker.api.v1 import checked_key
from crowdgrad.matchmaker.desk import Desk, Rules
from crowdgrad.matchmaker.openapi import describe
from crowdgrad.matchmaker.refusal import Refusal
from crowdgrad.matchmaker.room import Room
from crowdgrad.store.base import Store

MAX_SHOWN = 100


def routes(room: Room, desk: Desk, store: Store, *, public_url: str, rules: Rules) -> APIRouter:
    router = APIRouter()

    @router.get(
        "/", **describe("What this is, and who needs help.", None, html=True, refuses=(429,))
    )
    async def front() -> Response:
        shown = room.in_public(store.jobs())
        jobs = [room.summary(record) for record in shown[:MAX_SHOWN]]
        more = len(shown) - len(jobs)
        app = webapp.built()
        html = pages.front(
            jobs, room.health(), people.totals(store), more=more, origin=public_url, app=app
        )
        return page(html, headers=pages.APP_HEADERS if app else None)

    @router.get("/j/{code}", **describe("A job's page.", None, html=True, refuses=(404, 429)))
    async def job(code: str) -> Response:
        summary = room.summary(_find(desk, code))
        app = webapp.built()
        html = pages.job(summary, summary.link, pages.qr_svg(summary.link), app=app)
        return page(html, headers=pages.APP_HEADERS if app else None)

    @router.get(
        "/j/{code}/qr.svg",
        **describe("The job's link as a picture.", None, media="image/svg+xml", refuses=(404, 429)),
    )
    async def qr(code: str) -> Response:
        summary = room.summary(_find(desk, code))
        headers = {**SAFE, **pages.HEADERS}
        return Response(pages.qr_svg(summary.link), media_type="image/svg+xml", headers=headers)

    @router.get("/k/{key_id}", **describe("What a key gave.", None, html=True, refuses=(400, 429)))
    async def key(key_id: str) -> Response:
        return page(pages.key(people.summary(store, checked_key(key_id))))

    @router.get(
        "/privacy",
        **describe("What is kept, and how to delete it.", None, html=True, refuses=(429,)),
    )
    async def privacy() -> Response:
        return page(pages.privacy(forget_after_s=rules.forget_after_s, absent_s=rules.absent_s))

    return router


def _find(desk: Desk, code: str) -> JobRecord:
    """`desk.find_job`, refused in words for whoever has followed a link or typed a code."""
    try:
        return desk.find_job(code)
    except Refusal as refusal:
        error = TargetError(
            f"No job has the code {code[:64]!r} here.",
            advice="Check its letters: a code looks like K7Q-2MP. Jobs that have ended are "
            "forgotten after a while; ask whoever gave you the code.",
        )
        raise Refusal(refusal.status, error) from None


def problem(refusal: Refusal) -> Response:
    html = pages.problem(refusal.problem, refusal.status)
    return page(html, refusal.status, refusal.headers)
