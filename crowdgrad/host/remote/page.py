"""The public page of a job: for reading only, and safe to show to anybody.

`GET /` is the page, `/job.json` what it shows, `/qr.svg` the link as a picture, `/assets/` the web
app. Nothing here takes a wish or a token. The host's own API has these routes too; `--page` opens a
second listener that has nothing else. Strangers ask as often as they like, of the loop that trains:
so everything is put into words once, and told to all until something has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from fastapi import FastAPI, HTTPException
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException as NotServed
from starlette.requests import Request

from crowdgrad import __version__, webapp
from crowdgrad.host.telling.job_page import JobPage, job_page_as_json, qr_svg
from crowdgrad.net.local_api import Once

BOOT = {"serves": "job", "api": "/job.json", "version": __version__}
NOT_YET = "The job is not open yet: try again in a moment."


def create_page(take: Callable[[], JobPage | None]) -> FastAPI:
    """An app with the public page only. `take`: the job as it is now; None: not open yet."""
    app = FastAPI(
        title="crowdgrad job",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    add_page(app, take)

    @app.exception_handler(NotServed)
    async def refused(request: Request, error: NotServed) -> Response:
        return Response(
            f"{error.detail}\n",
            status_code=error.status_code,
            headers={**webapp.HEADERS, **(error.headers or {})},
            media_type="text/plain",
        )

    return app


def add_page(app: FastAPI, take: Callable[[], JobPage | None]) -> None:
    """`take` gives the same page to all who ask at about the same time."""
    as_html, as_json = Once(document), Once(job_page_as_json)

    def found() -> JobPage:
        page = take()
        if page is None:
            raise HTTPException(503, NOT_YET)
        return page

    @app.get("/", response_class=HTMLResponse, summary="The job's public page")
    async def page() -> HTMLResponse:
        headers = {**webapp.HEADERS, "Cache-Control": "no-store"}
        return HTMLResponse(as_html(found()), headers=headers)

    @app.get("/job.json", response_model=JobPage, summary="What the public page shows")
    async def job() -> Response:
        headers = {**webapp.HEADERS, "Cache-Control": "no-store"}
        return Response(as_json(found()), media_type="application/json", headers=headers)

    @app.get(
        "/qr.svg",
        summary="The job's link as a picture",
        response_class=Response,
        responses={200: {"content": {"image/svg+xml": {}}}},
    )
    async def qr() -> Response:
        link = found().link
        if not link:
            raise HTTPException(404, "This job has no link.")
        return Response(qr_svg(link), media_type="image/svg+xml", headers=webapp.HEADERS)

    webapp.mount(app)


def document(told: JobPage) -> str:
    return webapp.page(BOOT, inner=in_words(told), title=told.title)


def in_words(told: JobPage) -> str:
    """What the page says where no script runs."""
    state = told.phase if told.state == "running" else told.state
    rows = [
        ("State", "paused" if told.paused else state),
        ("Progress", f"{100 * told.progress:.0f} %"),
        (f"Best {told.watched}", told.best),
        ("Volunteers here", str(told.here)),
        ("Samples learned from", f"{told.samples:,}"),
        ("Code", told.code or told.local_code),
    ]
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    words = f"<p>{escape(told.description)}</p>" if told.description else ""
    return f"<main><h1>{escape(told.title)}</h1>{words}<dl>{facts}</dl></main>"
