"""The page about privacy, and the page of whoever meets an error."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from crowdgrad.matchmaker.pages import words
from crowdgrad.matchmaker.pages.layout import page
from crowdgrad.matchmaker.pages.markup import Html, el, join, said
from crowdgrad.net.rooms import Problem

KEPT = (
    ("You lend a machine",
     "Your public key, the name you chose, what your machine has (cores, memory, GPU, measured "
     "speed, bandwidth, engine, version of crowdgrad, whether others can dial it), your hours and "
     "limits, and what you would work for",
     "Kept while you are here; where you did not say good-bye, {absent} longer"),
    ("Your place in a job", "The position you were given, your key’s fingerprint and your name",
     "Kept as long as the job is"),
    ("You publish a job",
     "Everything you say of it: title, cause, description, contact, requirements, "
     "hyperparameters, your public key, the addresses and relays by which volunteers reach you, "
     "whom you invite; how far it is, in memory only",
     "Kept until you withdraw it, or {away} after it ended or you were last heard"),
    ("What somebody gave",
     "For each key and job: units, samples and FLOP as the host reports them, and what the "
     "volunteer countersigned, with its signature",
     "Kept until one of the two deletes it, as below"),
)  # fmt: skip
SEEN = (
    ("Everybody", "Public jobs as their hosts describe them, without the ways to the host, its "
     "whole key and invitations; what each key’s fingerprint gave, as far as both sides have "
     "signed it. Of a job that is not public, only the amount. What all have given together, to "
     "how many jobs, and how many they are; jobs that are not public count, too."),
    ("The members of a job", "The host’s address and the other ways to it, and its whole public "
     "key; each other’s names and fingerprints. Whoever works for a host connects to it, so it "
     "sees their network address; through a relay it does not."),
    ("Whoever runs a relay", "Where a host and a volunteer meet at one: both network addresses, "
     "both keys, when they talk, and how much. Not what they say: that is encrypted from one to "
     "the other."),
    ("Whoever runs this service", "All that is kept, and the network addresses you come from. "
     "Those are counted in memory for a while, so that nobody takes all there is, and written into "
     "no database. Whoever asks to be dialled is dialled at the address they come from; the answer "
     "is theirs alone, and not kept."),
)  # fmt: skip
FORGETTING = (
    "Your registration, your name in every roster and everything you gave are gone. Your jobs are "
    "gone, and so is what was given to them, except where the volunteer has countersigned it: that "
    "stays the volunteer’s, without your key and the job’s title."
)
NOT_FORGOTTEN = (
    "What cannot be called back: copies that hosts, volunteers or readers of public pages have "
    "made, your fingerprint in somebody else’s list of invited or trusted ones, and backups of "
    "this service until they are thrown away."
)


def privacy(*, forget_after_s: float = 3600.0, absent_s: float = 600.0, operator: str = "") -> str:
    """How long jobs are remembered, and absent volunteers; `operator`: whom to ask, as whoever
    runs the service wants to be shown."""
    return page(
        "Privacy",
        el("h1", "What is kept about you"),
        el("p", "You are a key: no account, no e-mail, no password. These pages set no cookies, "
           "run no scripts but our own, and load nothing from anywhere else.", class_="lead"),
        _kept(away=words.duration(forget_after_s), absent=words.duration(absent_s)),
        el("section", el("h2", "Who sees what"), _table((), SEEN)),
        _deleting(),
        el("section", el("h2", "Who runs this service"), said(operator, "p")) if operator else None,
    )  # fmt: skip


def problem(problem: Problem, status: int = 400) -> str:
    """What a browser is shown instead of what it asked for."""
    return page(
        HTTPStatus(status).phrase,
        el("h1", _headline(status)),
        el("section",
           el("p", problem.message),
           el("p", problem.advice) if problem.advice else None,
           el("p", f"Error {problem.code}, status {status}.", class_="dim small")),
        el("p", el("a", "All open jobs", href="/")),
    )  # fmt: skip


def _headline(status: int) -> str:
    if status == HTTPStatus.NOT_FOUND:
        return "There is nothing here"
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "Please come again in a moment"
    return "That cannot be done"


def _kept(*, away: str, absent: str) -> Html:
    rows = [(name, what, long.format(away=away, absent=absent)) for name, what, long in KEPT]
    head = ("When", "What is kept", "For how long")
    return el("section", el("h2", "What, and for how long"), _table(head, rows))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Html:
    names = el("thead", el("tr", *(el("th", name, scope="col") for name in head))) if head else None
    body = (
        el("tr", el("th", row[0], scope="row"), *(el("td", cell) for cell in row[1:]))
        for row in rows
    )
    return el("table", names, el("tbody", *body), class_="words")


def _deleting() -> Html:
    return el(
        "section",
        el("h2", "See and delete it"),
        _command("Everything that is kept about your key:", "crowdgrad key kept"),
        _command("Delete it, at once:", "crowdgrad key forget"),
        el("p", FORGETTING),
        el("p", NOT_FORGOTTEN),
    )


def _command(what: str, line: str) -> Html:
    return join(el("p", what), el("code", line, class_="command", tabindex=0))
