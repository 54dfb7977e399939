"""The pages for everybody: a job's own, of its host and of a matchmaker, and the front page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.chromium import needs_chromium
from tests.pages.panels import Hosting, heard, host, job_file, process, volunteer
from tests.pages.people import PATIENCE_MS, Visitor, visitor
from tests.pages.screens import look_at

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
TITLE = "Digits <img src=x onerror=alert(1)> & more"
WORDS = 'description = "Reads old post cards."\ncontact = "ada@example.org"'


@dataclass(frozen=True)
class Place:
    matchmaker: str
    host: Hosting
    page: str
    home: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A matchmaker, a published job with a page of its own, and somebody who helps."""
    home = tmp_path_factory.mktemp("public")
    store = ["--database", f"sqlite:///{home / 'matchmaker.db'}"]
    with process("matchmaker", "--port", "0", *store, cwd=home) as service:
        url = heard(service, r"http://127\.0\.0\.1:\d+").rstrip("/")
        options = ["--matchmaker", url, "--yes", "--page", "127.0.0.1:0"]
        with host(home / "host", job_file(TITLE, epochs=100_000, more=WORDS), *options) as hosting:
            code = str(hosting.told["code"])
            with volunteer(home / "anna", code, "anna", "--matchmaker", url, "--pace", "100"):
                yield Place(url, hosting, str(hosting.told["page"]), home)


def test_a_job_tells_everybody_what_it_is_for_and_how_to_join(
    browser: Browser, place: Place
) -> None:
    with visitor(browser, place.page) as guest:
        expect(guest.page.get_by_role("heading", name=TITLE)).to_be_visible()
        guest.waits_for("job-state", "Running")
        for words in ("education", "Reads old post cards.", "anna", "Best accuracy"):
            expect(guest.page.get_by_text(words).first).to_be_visible(timeout=PATIENCE_MS)
        expect(guest.see("job-code")).to_have_text(re.compile(r"^[A-Z0-9]{3}-[A-Z0-9]{3}$"))
        expect(guest.page.get_by_role("img", name=re.compile("QR"))).to_be_visible()
        code = guest.see("job-code").inner_text()
        command = f"crowdgrad work {code} --matchmaker {place.matchmaker}"
        expect(guest.page.get_by_text(command)).to_be_visible()
        expect(guest.page.get_by_role("link", name="ada@example.org")).to_be_visible()
        assert guest.serious() == []
        assert guest.complaints == []


def test_what_is_typed_elsewhere_can_be_copied(browser: Browser, place: Place) -> None:
    with visitor(browser, place.page) as guest:
        guest.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        button = guest.page.get_by_role("button", name="Copy crowdgrad work")
        said = guest.page.get_by_role("status").filter(has_text="Copied")
        button.click()
        expect(said).to_have_count(1)  # for who cannot see the button
        expect(button).to_have_text("Copied")
        copied = guest.page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith(f"crowdgrad work {place.host.told['code']}")
        expect(said).to_have_count(0)
        expect(button).to_have_text("Copy")
        # As on plain http, from another machine of the network.
        guest.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        button.click()
        expect(guest.page.get_by_text("Copying is not allowed here")).to_be_visible()


def test_who_is_not_named_is_counted(browser: Browser, place: Place) -> None:
    def crowded(route: Route) -> None:
        told = route.fetch().json()
        route.fulfill(json={**told, "took_part": 1200, "members": told["members"][:1] * 100})

    with visitor(browser, "about:blank") as guest:
        guest.page.route("**/job.json", crowded)
        guest.page.goto(place.page)
        expect(guest.page.get_by_text("and 1,150 more")).to_be_visible(timeout=PATIENCE_MS)


def test_the_matchmaker_lists_it_by_cause_and_finds_it(browser: Browser, place: Place) -> None:
    with visitor(browser, place.matchmaker) as guest:
        link = guest.page.get_by_role("link", name=TITLE)
        expect(link).to_be_visible(timeout=PATIENCE_MS)
        expect(guest.page.get_by_role("heading", name=re.compile("education"))).to_be_visible()
        guest.see("search").fill("no such job")
        expect(link).to_be_hidden()
        guest.page.get_by_role("button", name="Show all jobs").click()
        expect(link).to_be_visible()
        guest.see("search").fill("post cards")
        expect(link).to_be_visible()
        assert guest.serious() == []
        link.click()
        guest.waits_for("job-state", "Running")
        expect(guest.see("job-code")).to_be_visible()
        expect(guest.page.get_by_role("progressbar", name=re.compile(r"\d % done"))).to_be_visible()
        assert guest.serious() == []
        assert guest.complaints == []


def test_a_job_that_is_taken_from_the_list_is_said_so(browser: Browser, place: Place) -> None:
    with visitor(browser, f"{place.matchmaker}/j/{place.host.told['code']}") as guest:
        guest.waits_for("job-state", "Running")
        expect(guest.page.get_by_text(re.compile(r"\d % done"))).to_be_visible(timeout=PATIENCE_MS)
        guest.page.route("**/v1/jobs/*", lambda route: route.fulfill(status=503, body="{}"))
        expect(guest.page.get_by_text("The last values are shown")).to_be_visible()
        expect(guest.see("job-code")).to_be_visible()
        guest.page.unroute("**/v1/jobs/*")
        guest.page.route("**/v1/jobs/*", lambda route: route.fulfill(status=404, body="{}"))
        guest.waits_for("job-state", "Not listed any more")
        expect(guest.page.get_by_text("The last values are shown")).to_be_hidden()
        expect(guest.see("job-code")).to_be_hidden()


def test_jobs_are_listed_where_the_totals_fail(browser: Browser, place: Place) -> None:
    with visitor(browser, "about:blank") as guest:
        guest.page.route("**/healthz", lambda route: route.abort())
        guest.page.goto(place.matchmaker)
        expect(guest.page.get_by_role("link", name=TITLE)).to_be_visible(timeout=PATIENCE_MS)
        guest.page.unroute("**/healthz")
        guest.page.route("**/v1/jobs", lambda route: route.abort())
        guest.page.reload()
        guest.is_told("The server of this page does not answer.")


def test_what_was_given_in_all_is_said(browser: Browser, place: Place) -> None:
    given = {"volunteers": 51, "jobs": 7, "samples": 1_234_567, "flop": 2.5e15}
    with visitor(browser, "about:blank") as guest:
        guest.page.route("**/v1/totals", lambda route: route.fulfill(json=given))
        guest.page.goto(place.matchmaker)
        for words in ("1.2 million", "51", "2.5 PFLOP"):
            guest.waits_for("given", words)
        guest.page.unroute("**/v1/totals")
        guest.page.reload()
        guest.waits_for("given", re.compile(r"samples so far\s*0"))


def test_how_they_look(browser: Browser, place: Place) -> None:
    def job(guest: Visitor) -> None:
        guest.waits_for("job-state", "Running")

    def front(guest: Visitor) -> None:
        expect(guest.page.get_by_role("link", name=TITLE)).to_be_visible(timeout=PATIENCE_MS)

    at_matchmaker = f"{place.matchmaker}/j/{place.host.told['code']}"
    wrong = look_at(browser, place.page, "job", job)
    wrong += look_at(browser, place.matchmaker, "front", front)
    wrong += look_at(browser, at_matchmaker, "job-at-matchmaker", job)
    assert wrong == []


def test_without_scripts_they_say_the_essentials(browser: Browser, place: Place) -> None:
    for url in (place.page, place.matchmaker):
        with visitor(browser, url, java_script_enabled=False) as guest:
            expect(guest.page.get_by_text(TITLE).first).to_be_visible()
            expect(
                guest.page.get_by_text(re.compile(r"\b[A-Z0-9]{3}-[A-Z0-9]{3}\b")).first
            ).to_be_visible()
            assert guest.complaints == []


def test_where_nobody_asks_for_help_it_says_how_to_begin(browser: Browser, tmp_path: Path) -> None:
    store = ["--database", f"sqlite:///{tmp_path / 'matchmaker.db'}"]
    with process("matchmaker", "--port", "0", *store, cwd=tmp_path) as service:
        url = heard(service, r"http://127\.0\.0\.1:\d+")
        with visitor(browser, url) as guest:
            guest.waits_for("no-jobs", "crowdgrad host job.toml --matchmaker")
            assert guest.serious() == []


def test_a_job_that_is_not_there_is_said_so(browser: Browser, place: Place) -> None:
    with visitor(browser, f"{place.matchmaker}/j/ZZZ-ZZZ") as guest:
        expect(guest.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
        expect(guest.page.get_by_text("ZZZ-ZZZ").first).to_be_visible()
        expect(guest.page.get_by_role("link", name="All open jobs")).to_be_visible()
