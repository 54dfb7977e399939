"""The page of a key: what it gave, and what was given to its jobs."""

from __future__ import annotations

from collections.abc import Iterable

from crowdgrad.matchmaker.pages import words
from crowdgrad.matchmaker.pages.layout import page
from crowdgrad.matchmaker.pages.markup import Html, el, path, said
from crowdgrad.matchmaker.pages.pictures import bar
from crowdgrad.net.bodies import GiftBody
from crowdgrad.net.rooms import CreditBody, KeySummary

BARS = 8
"""Jobs in the picture, the largest gifts first."""


def key(summary: KeySummary) -> str:
    """What is publicly known of a key."""
    return page(
        f"Key {summary.key}",
        el("h1", "Key ", el("code", summary.key)),
        el("p", "A key is all that is known of a person here. A gift counts once both sides have "
           "said the same: the host reports it, the volunteer countersigns it.", class_="lead"),
        _facts(summary),
        _gave(summary),
        _received(summary),
    )  # fmt: skip


def _facts(summary: KeySummary) -> Html:
    samples = sum(gift.samples for row in summary.gave if (gift := row.signed))
    facts = (
        ("given, countersigned", words.flop(summary.flop)),
        ("samples", f"{samples:,}"),
        ("jobs helped", f"{len(summary.gave):,}"),
        ("gifts received", f"{len(summary.received):,}"),
    )
    return el(
        "dl",
        *(el("div", el("dt", name), el("dd", value)) for name, value in facts),
        class_="facts four",
    )


def _gave(summary: KeySummary) -> Html:
    if not summary.gave:
        nothing = "No host has reported a gift of this key."
        return el("section", el("h2", "What it gave"), el("p", nothing))
    rows = ((_title(row), row) for row in summary.gave)
    return el("section", el("h2", "What it gave"), _picture(summary.gave), _table("Job", rows))


def _received(summary: KeySummary) -> Html | None:
    if not summary.received:
        return None
    rows = ((_volunteer(row), row) for row in summary.received)
    return el("section", el("h2", "What was given to its jobs"), _table("By", rows))


def _title(row: CreditBody) -> Html:
    return said(row.title) if row.title else el("span", "a job that is not listed", class_="dim")


def _volunteer(row: CreditBody) -> Html:
    who = el("a", el("code", row.volunteer), href=path("k", row.volunteer))
    return el("span", who, el("span", said(row.title), class_="sub"))


def _picture(gave: tuple[CreditBody, ...]) -> Html:
    largest = sorted(gave, key=lambda row: row.reported.flop, reverse=True)[:BARS]
    most = max(row.reported.flop for row in largest)
    cells = [cell for row in largest for cell in _bar(row, most)]
    caption = "Full colour: countersigned. Pale: reported by the host, not countersigned (yet)."
    return el("figure", el("div", *cells, class_="bars"), el("figcaption", caption))


def _bar(row: CreditBody, most: float) -> tuple[Html, Html, Html]:
    reported, signed = row.reported.flop, row.signed.flop if row.signed else 0.0
    label = f"{words.flop(reported)} reported, {words.flop(signed)} countersigned"
    return (
        el("span", _title(row), class_="label"),
        bar(min(signed, reported), reported, most, label),
        el("span", words.flop(reported), class_="amount"),
    )


def _table(first: str, rows: Iterable[tuple[Html, CreditBody]]) -> Html:
    head = el(
        "tr",
        el("th", first, scope="col"),
        el("th", "Reported", scope="col"),
        el("th", "Countersigned", scope="col"),
    )
    body = (_row(name, row) for name, row in rows)
    return el("div", el("table", el("thead", head), el("tbody", *body)), class_="table")


def _row(name: Html, row: CreditBody) -> Html:
    when = el("span", words.day(row.reported_at), class_="sub")
    return el(
        "tr",
        el("th", name, when, scope="row"),
        el("td", *_amount(row.reported)),
        el("td", *(_amount(row.signed) if row.signed else ("not yet",))),
    )


def _amount(gift: GiftBody) -> tuple[str, Html]:
    return words.flop(gift.flop), el("span", words.count(gift.samples, "sample"), class_="sub")
