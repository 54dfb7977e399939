"""The front page and the page of one job."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from crowdgrad.domain.matching import OPEN_STATES
from crowdgrad.matchmaker.pages import words
from crowdgrad.matchmaker.pages.layout import page
from crowdgrad.matchmaker.pages.markup import Html, el, join, path, said
from crowdgrad.matchmaker.pages.pictures import bar
from crowdgrad.net.rooms import Health, JobSummary, TotalsBody

WHAT = (
    "People train neural networks here together: someone has a model and data, others lend the "
    "spare time of their machines. This page introduces them to each other; the work itself goes "
    "directly between them."
)
_ORIGIN = re.compile(
    r"https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?"
)


def front(
    jobs: Sequence[JobSummary],
    health: Health,
    totals: TotalsBody,
    *,
    more: int = 0,
    origin: str = "",
    app: bool = False,
) -> str:
    """What this is, and who needs help. `more`: so many others are not in `jobs`; `origin`: this
    matchmaker as it is addressed; `app`: let the web app take over."""
    open_jobs = [job for job in jobs if job.state in OPEN_STATES and job.presence != "gone"]
    open_jobs.sort(key=lambda job: job.volunteers >= job.maximum)  # those with room come first
    return page(
        "Jobs that need help",
        el("h1", "Lend your machine’s spare time"),
        el("p", WHAT, class_="lead"),
        _facts(len(open_jobs) + more, health),
        _given(totals),
        _open(open_jobs, more),
        _help(origin),
        boot=_boot("front") if app else None,
    )


def job(summary: JobSummary, link: str, qr_svg: str, *, app: bool = False) -> str:
    """One job for people. `link`: of this page; `qr_svg`: its picture (`qr_svg`); `app`: let the
    web app take over."""
    is_open = summary.state in OPEN_STATES
    return page(
        summary.title,
        said(summary.title, "h1"),
        _tags(summary),
        _join(summary, link, qr_svg) if is_open else None,
        _about(summary),
        _needs(summary) if is_open else None,
        _on_your_machine() if is_open else None,
        boot=_boot("job", summary.code) if app else None,
    )


def _boot(page: str, code: str | None = None) -> dict[str, object]:
    """What the web app must know at once; the rest it asks at /v1."""
    return {"serves": "matchmaker", "page": page, "code": code}


def command(code: str, origin: str) -> str:
    """What a volunteer types. An address that is not a plain one is left out: people paste this."""
    where = f" --matchmaker {origin}" if _ORIGIN.fullmatch(origin) else ""
    return f"crowdgrad work {code}{where}".replace("  ", " ")


def _facts(jobs: int, health: Health) -> Html:
    """`jobs`: those that are listed; of the others nobody is told."""
    facts = (
        ("open jobs", jobs),
        ("volunteers here", health.volunteers),
        ("of them waiting", health.waiting),
    )
    return el(
        "dl",
        *(el("div", el("dt", name), el("dd", f"{number:,}")) for name, number in facts),
        class_="facts",
    )


def _given(totals: TotalsBody) -> Html | None:
    if not totals.samples:
        return None
    return el(
        "p",
        f"So far {words.count(totals.volunteers, 'machine')} computed "
        f"{words.count(totals.samples, 'sample')} ({words.flop(totals.flop)}) for "
        f"{words.count(totals.jobs, 'job')}.",
    )


def _open(jobs: list[JobSummary], more: int) -> Html:
    if not jobs:
        nobody = "Nobody asks for help in public just now. Wait here with the command below: "
        return el(
            "section",
            el("h2", "Open jobs"),
            el("p", nobody, "your machine begins by itself when somebody does."),
        )
    return el(
        "section",
        el("h2", "Open jobs"),
        el("ul", *(_row(job) for job in jobs), class_="jobs"),
        el("p", f"… and {more:,} more.", class_="dim") if more > 0 else None,
    )


def _row(job: JobSummary) -> Html:
    cause = said(job.cause) if job.cause else None
    return el(
        "li",
        el("h3", el("a", said(job.title), href=path("j", job.code))),
        el("span", job.code, class_="code"),
        el("span", cause, " · " if cause else None, words.state(job), class_="dim small"),
        _meter(job),
    )


def _meter(job: JobSummary) -> Html:
    label = f"{job.volunteers:,} of {words.count(job.maximum, 'volunteer')}"
    return el(
        "div",
        bar(job.volunteers, job.volunteers, job.maximum, label),
        el("span", label, aria_hidden="true"),
        class_="meter",
    )


def _help(origin: str) -> Html:
    return el(
        "section",
        el("h2", "How to help"),
        el("p", "With crowdgrad installed, type this with the code of a job:"),
        el("code", command("CODE", origin), class_="command", tabindex=0),
        el("p", "Without a code your machine helps whoever needs it most:"),
        el("code", command("", origin), class_="command", tabindex=0),
        el("p", "You need no account: your machine makes itself a key. You are asked before it "
           "works for a new host, and Ctrl-C ends it whenever you like. ",
           el("a", "What is kept about you", href="/privacy"), "."),
    )  # fmt: skip


def _tags(job: JobSummary) -> Html:
    return el(
        "p",
        el("span", words.state(job), class_=f"tag {words.mood(job)}"),
        said(job.cause, "span", class_="tag") if job.cause else None,
        class_="tags",
    )


def _join(job: JobSummary, link: str, qr_svg: str) -> Html:
    origin = link.removesuffix(f"/j/{job.code}")
    picture = el(
        "figure", Html(qr_svg), el("figcaption", "this page, for a phone’s camera"), class_="qr"
    )
    how = el(
        "div",
        el("p", "The code of this job", class_="dim small"),
        el("p", job.code, class_="code big"),
        el("p", "With crowdgrad installed, type:"),
        el("code", command(job.code, origin), class_="command", tabindex=0),
        _meter(job),
        _enough(job),
    )
    return el("section", el("h2", "Help with this job"), el("div", how, picture, class_="join"))


def _enough(job: JobSummary) -> Html | None:
    lacking = job.minimum - job.volunteers
    if job.state != "waiting" or lacking <= 0:
        return None
    more = "1 more has" if lacking == 1 else f"{lacking:,} more have"
    return el("p", f"It begins when {more} come.", class_="dim small")


def _about(job: JobSummary) -> Html:
    key = el("a", el("code", job.key), href=path("k", job.key))
    host = join(key, ": crowdgrad shows it before you agree to help") if job.key else None
    rows = [
        ("Contact", said(job.contact) if job.contact else None),
        ("Host’s key", host),
        ("Published", words.day(job.published_at)),
        ("Done", f"{math.floor(100 * job.progress)} %" if job.progress is not None else None),
        ("Listed", None if job.visibility == "public" else "no: only whoever has the link sees it"),
    ]
    return el(
        "section",
        el("h2", "About it"),
        said(job.description, "p", class_="prose") if job.description else None,
        _table(rows),
        el("p", "Title, description and contact are the host’s own words. Nobody has checked "
           "them.", class_="dim small"),
    )  # fmt: skip


def _table(rows: list[tuple[str, str | None]]) -> Html:
    shown = (
        el("tr", el("th", name, scope="row"), el("td", value)) for name, value in rows if value
    )
    return el("table", el("tbody", *shown), class_="words")


def _needs(job: JobSummary) -> Html:
    needs = words.requirements(job.requirements)
    listed = el("ul", *(el("li", need) for need in needs)) if needs else None
    return el(
        "section",
        el("h2", "What your machine needs"),
        listed if needs else el("p", "Any machine will do."),
    )


def _on_your_machine() -> Html:
    return el(
        "section",
        el("h2", "What happens on your machine"),
        el("p", join("Nothing the host wrote is run. Its model is a graph of arithmetic, checked "
           "against a list of what is allowed and computed at low priority by a process of its "
           "own, which reaches no network and no file. You are asked first, and you can stop at "
           "any time.")),
        el("p", "The host sees your network address, your key’s fingerprint, the name you chose "
           "and how fast you work. ", el("a", "What is kept here", href="/privacy"), "."),
    )  # fmt: skip
