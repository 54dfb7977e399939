"""Pages for people: they say what is there, run nothing, and believe no stranger's words."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.matchmaker import pages
from crowdgrad.matchmaker.pages import words
from crowdgrad.matchmaker.pages.jobs import command
from crowdgrad.matchmaker.pages.layout import DARK, LIGHT
from crowdgrad.matchmaker.pages.markup import Html, el, said
from crowdgrad.net import bodies, rooms

LINK = "https://match.example.org/j/K7Q-2MP"
EVIL = (
    "<script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; &#60;",
    "{{7*7}} ${7*7} <%= 7*7 %> {0} %s",
    "--><iframe src=//evil.example>",
    "\u202egnp.exe",
    "\x00\x1b[2J\ud800",
)
HEALTH = rooms.Health(ok=True, jobs=2, volunteers=1204, waiting=31)
TOTALS = rooms.TotalsBody(volunteers=51, jobs=1, samples=1_234_567, flop=2.5e15)


def summary(**values: object) -> rooms.JobSummary:
    fields: dict[str, object] = {
        "id": "mnist-1",
        "title": "Handwritten digits",
        "cause": "teaching",
        "key": "9f86d081884c7d65",
        "code": "K7Q-2MP",
        "state": "waiting",
        "presence": "alive",
        "minimum": 2,
        "maximum": 8,
        "volunteers": 1,
        "published_at": 1_763_300_000.0,
        "hyperparameters": {},
        "description": "It reads digits.\nAll ten.",
        "contact": "me@example.org",
        "requirements": bodies.RequirementsBody(),
        "visibility": "public",
        "link": LINK,
        "progress": None,
    }
    return rooms.JobSummary(**{**fields, **values})  # type: ignore[arg-type]


def gift(units: int) -> bodies.GiftBody:
    return bodies.GiftBody(units=units, samples=units * 100, flop=units * 1e12)


def credit(title: str = "Digits", *, units: int = 4, signed: int = 4) -> rooms.CreditBody:
    return rooms.CreditBody(
        job="mnist-1",
        title=title,
        host="9f86d081884c7d65",
        volunteer="0123456789abcdef",
        reported=gift(units),
        reported_at=1_763_300_000.0,
        agreed=units == signed,
        signed=gift(signed) if signed else None,
    )


def key_of(*gave: rooms.CreditBody, received: tuple[rooms.CreditBody, ...] = ()) -> str:
    return pages.key(
        rooms.KeySummary(key="0123456789abcdef", gave=gave, received=received, flop=4e12)
    )


def problem(message: str = "No such job.", advice: str = "Check it.") -> rooms.Problem:
    return rooms.Problem(code="CG105", message=message, advice=advice)


def every_page(words: str) -> Iterator[tuple[str, str]]:
    """Each page, with these words wherever a stranger's can stand."""
    job = summary(
        title=words, cause=words, description=words, contact=words, key=words, code=words,
        requirements=bodies.RequirementsBody(engines=(words,)),
    )  # fmt: skip
    yield "front", pages.front([job], HEALTH, TOTALS, more=2, origin=words)
    yield "job", pages.job(job, words, pages.qr_svg(LINK))
    row = rooms.CreditBody(
        job=words, title=words, host=words, volunteer=words, reported=gift(3), reported_at=1.0,
        agreed=False, signed=gift(2), signature=words,
    )  # fmt: skip
    yield "key", pages.key(rooms.KeySummary(key=words, gave=(row,), received=(row,), flop=1.0))
    yield "privacy", pages.privacy(forget_after_s=3600.0, operator=words)
    yield "problem", pages.problem(problem(words, words), 404)


class Reader(HTMLParser):
    """What a browser would make of it; complains about elements that are not closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.by_tag: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in {"meta", "link"} and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open:
            self.by_tag.setdefault(self.open[-1], []).append(data)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def text_of(page: str) -> str:
    return " ".join(" ".join(read(page).text).split())


USUAL = dict(every_page("ordinary words"))


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("evil", EVIL)
def test_a_strangers_words_stay_words(name: str, evil: str) -> None:
    page = dict(every_page(evil))[name]
    page.encode()  # raises on half of a pair
    usual, found = read(USUAL[name]), read(page)
    assert found.tags == usual.tags, "not one element more or less"
    assert [pair[:2] for pair in found.attributes] == [pair[:2] for pair in usual.attributes]
    for _, attribute, value in found.attributes:
        assert attribute not in {"style", "src", "onload"}
        if attribute == "href":
            assert re.match(r"/|#content$|data:image/svg\+xml,", value)
    assert "\x1b" not in page
    assert "\u202e" not in page


@given(st.text(max_size=60))
def test_whatever_they_are(words: str) -> None:
    for name, page in every_page(words or "x"):
        assert read(page).tags == read(USUAL[name]).tags
        assert page.encode()


@pytest.mark.parametrize("name", USUAL)
def test_a_page_loads_and_runs_nothing(name: str) -> None:
    reader = read(USUAL[name])
    assert not {"script", "img", "iframe", "object", "form", "input", "base"} & set(reader.tags)
    assert [tag for tag, attribute, _ in reader.attributes if attribute == "style"] == []
    assert [a for _, a, _ in reader.attributes if a.startswith("on")] == []
    css = "".join(reader.by_tag["style"])
    assert "url(" not in css
    assert "@import" not in css
    assert len(USUAL[name]) < 20_000


@pytest.mark.parametrize("name", USUAL)
def test_the_headers_allow_this_stylesheet_and_nothing_else(name: str) -> None:
    (css,) = re.findall(r"<style>(.*?)</style>", USUAL[name], re.DOTALL)
    policy = pages.HEADERS["Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "script-src" not in policy
    for rule in ("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert rule in policy
    assert pages.HEADERS["X-Content-Type-Options"] == "nosniff"
    assert pages.HEADERS["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", USUAL)
def test_a_page_can_be_found_ones_way_around_in(name: str) -> None:
    reader = read(USUAL[name])
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert reader.tags.count(landmark) == 1, landmark
    assert ("html", "lang", "en") in reader.attributes
    assert ("a", "href", "#content") in reader.attributes
    assert ("main", "id", "content") in reader.attributes
    levels = [int(tag[1]) for tag in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in pairwise(levels)), levels
    pictures = reader.tags.count("svg")
    labelled = [a for tag, a, _ in reader.attributes if tag == "svg"]
    assert (
        labelled.count("aria-label") + labelled.count("aria-hidden") + (name == "job") == pictures
    ), "the QR code has a title inside"
    heads = [value for tag, a, value in reader.attributes if (tag, a) == ("th", "scope")]
    assert len(heads) == reader.tags.count("th")


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [("ink", "paper"), ("ink", "card"), ("ink", "tint"), ("dim", "paper"), ("dim", "card"),
     ("blue", "paper"), ("blue", "card")],
)  # fmt: skip
def test_words_stand_out_from_their_ground(palette: dict[str, str], ink: str, paper: str) -> None:
    """4.5 is what WCAG 2 asks of text of ordinary size."""
    low, high = sorted((luminance(palette[ink]), luminance(palette[paper])))
    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_the_front_page_lists_what_is_open() -> None:
    jobs = [
        summary(title="Full one", volunteers=8, code="B3F-9TX"),
        summary(title="Open one"),
        summary(title="Over one", state="finished"),
        summary(title="Lonely one", presence="gone"),
    ]
    text = text_of(pages.front(jobs, HEALTH, TOTALS, more=3))
    assert text.index("Open one") < text.index("Full one"), "those with room first"
    assert "Over one" not in text
    assert "Lonely one" not in text
    assert "1 of 8 volunteers" in text
    assert "1,204" in text
    assert "open jobs 5 " in text, "as many as are listed, and those that did not fit"
    assert "crowdgrad work CODE" in text
    assert "… and 3 more." in text
    assert "So far 51 machines computed 1,234,567 samples (2.5 PFLOP) for 1 job." in text
    assert 'href="/j/K7Q-2MP"' in pages.front(jobs, HEALTH, TOTALS)


def test_an_empty_house_says_so() -> None:
    text = text_of(pages.front([], HEALTH, rooms.TotalsBody(0, 0, 0, 0.0)))
    assert "Nobody asks for help" in text
    assert "So far" not in text, "nothing was given yet"


def test_a_job_has_what_one_needs_to_help() -> None:
    needs = bodies.RequirementsBody(cores=4, memory_mb=6000, gpu=True, data_mb=740)
    page = pages.job(summary(requirements=needs), LINK, pages.qr_svg(LINK))
    text = text_of(page)
    assert "crowdgrad work K7Q-2MP --matchmaker https://match.example.org" in text
    assert "at least 4 processor cores" in text
    assert "a GPU" in text
    assert "It begins when 1 more have come." not in text
    assert "It begins when 1 more has come." in text
    assert "me@example.org" in text
    assert "mailto:" not in page
    assert "<path" in page
    assert 'href="/k/9f86d081884c7d65"' in page
    assert "Any machine will do." in text_of(pages.job(summary(), LINK, ""))


def test_a_job_that_is_over_asks_nobody_to_come() -> None:
    text = text_of(pages.job(summary(state="stopped"), LINK, pages.qr_svg(LINK)))
    assert "crowdgrad work" not in text
    assert "Stopped by its host" in text
    assert "your machine" not in text
    assert "9f86d081884c7d65" in text


@pytest.mark.parametrize(
    "origin",
    ["", "https://x.example; rm -rf ~", "http://$(id)", "https://x.example/`id`", "ftp://x", "x"],
)
def test_nobody_is_made_to_paste_a_strangers_command(origin: str) -> None:
    assert command("K7Q-2MP", origin) == "crowdgrad work K7Q-2MP"


@pytest.mark.parametrize("origin", ["https://x.example", "http://127.0.0.1:8700", "http://[::1]:1"])
def test_the_command_names_the_matchmaker(origin: str) -> None:
    assert command("K7Q-2MP", origin) == f"crowdgrad work K7Q-2MP --matchmaker {origin}"
    assert command("", origin) == f"crowdgrad work --matchmaker {origin}"


def test_a_key_shows_what_was_said_and_what_was_signed() -> None:
    page = key_of(credit(), credit("Poems", units=9, signed=0), credit("", units=2, signed=1))
    text = text_of(page)
    assert "4 TFLOP" in text
    space = "\N{NO-BREAK SPACE}"
    assert f"9{space}TFLOP reported, 0{space}FLOP countersigned" in page
    assert "not yet" in text
    assert "a job that is not listed" in text
    assert "given to its jobs" not in text
    assert 'width="100"' in page, "the largest gift fills its bar"
    assert "given to its jobs" in text_of(key_of(received=(credit(),)))
    assert "No host has reported a gift" in text_of(key_of())


def test_an_empty_gift_is_drawn() -> None:
    assert 'width="0"' in key_of(credit(units=0, signed=0))


def test_privacy_says_how_to_see_and_delete_it_all() -> None:
    text = text_of(pages.privacy(forget_after_s=7200.0, operator="the club"))
    for words_ in ("crowdgrad key kept", "crowdgrad key forget", "2 hours after it ended",
                   "10 minutes longer", "no cookies", "no e-mail", "The host’s address",
                   "the club"):  # fmt: skip
        assert words_ in text, words_


@pytest.mark.parametrize(
    ("status", "headline"),
    [
        (404, "There is nothing here"),
        (429, "Please come again in a moment"),
        (503, "Please come again in a moment"),
        (405, "That cannot be done"),
    ],
)
def test_a_problem_is_told_with_what_to_do(status: int, headline: str) -> None:
    text = text_of(pages.problem(problem(), status))
    for words_ in (headline, "No such job.", "Check it.", "CG105"):
        assert words_ in text


def test_the_qr_code_is_a_picture_by_itself() -> None:
    svg = pages.qr_svg(LINK)
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "viewBox" in svg
    assert "style=" not in svg
    assert svg == pages.qr_svg(LINK)
    assert svg != pages.qr_svg(LINK + "x")
    assert "<script" not in pages.qr_svg("<script>")
    assert pages.qr_svg("https://match.example.org/" + "x" * 900)


@pytest.mark.parametrize(
    ("needs", "said_"),
    [
        ({}, []),
        ({"gpu_memory_mb": 8000}, ["a GPU with at least 8 GB of memory"]),
        ({"memory_mb": 640}, ["at least 640 MB of memory"]),
        ({"gflops": 12.5}, ["a measured speed of at least 12.5 GFLOP/s"]),
        ({"download_mbps": 10.0}, ["a connection that downloads 10 Mbit/s"]),
        ({"engines": ("onnx", "torch")}, ["one of these engines: onnx, torch"]),
        ({"kinds": ("native",)}, ["crowdgrad installed: a browser is not enough"]),
        ({"kinds": ("browser",)}, ["a browser: this job wants no other volunteers"]),
        ({"kinds": ("browser", "native")}, []),
    ],
)
def test_requirements_in_words(needs: dict[str, object], said_: list[str]) -> None:
    assert words.requirements(bodies.RequirementsBody(**needs)) == said_  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "presence", "volunteers", "words_", "mood"),
    [
        ("waiting", "alive", 1, "Waiting for volunteers", "good"),
        ("running", "alive", 1, "Running, and open for more", "good"),
        ("running", "alive", 8, "Running, and full", "full"),
        ("running", "suspect", 1, "Its host has not been heard for a moment", "away"),
        ("waiting", "gone", 1, "Its host is away", "away"),
        ("failed", "gone", 1, "Failed", "away"),
        ("finished", "alive", 1, "Finished", "away"),
    ],
)
def test_states_in_words(
    state: str, presence: str, volunteers: int, words_: str, mood: str
) -> None:
    job = summary(state=state, presence=presence, volunteers=volunteers)
    assert (words.state(job), words.mood(job)) == (words_, mood)


def test_numbers_in_words() -> None:
    space = "\N{NO-BREAK SPACE}"
    assert words.flop(0) == f"0{space}FLOP"
    assert words.flop(1.234e15) == f"1.23{space}PFLOP"
    assert words.flop(999.9e9) == f"1{space}TFLOP"
    assert words.flop(9.9e29).endswith(f"{space}RFLOP")
    assert words.count(1, "job") == "1 job"
    assert words.count(2000, "job") == "2,000 jobs"
    assert [words.duration(s) for s in (30, 3600, 86400 * 30)] == [
        "30 seconds",
        "1 hour",
        "30 days",
    ]
    assert words.day(1_763_300_000.0) == "16 Nov 2025"


def test_text_becomes_markup_only_by_a_function() -> None:
    assert el("p", "<b>", Html("<i></i>"), None, title='"x"') == (
        '<p title="&quot;x&quot;">&lt;b&gt;<i></i></p>'
    )
    assert el("br") == "<br>"
    assert said("<b>") == '<bdi dir="auto">&lt;b&gt;</bdi>'
    assert isinstance(el("p"), Html)
    assert el("p", "a\u202eb") == "<p>a\ufffdb</p>"
