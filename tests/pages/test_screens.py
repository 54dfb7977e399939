"""Every page of the panel in light, dark and on a phone: nothing there keeps anybody out.

The pictures lie in `runs/screens/` after a test run.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Route, WebSocketRoute, expect

from crowdgrad.panel.runs import MOST_SHOWN
from tests.chromium import needs_chromium
from tests.pages.panels import MLP, Running, panel, until, volunteer
from tests.pages.people import ONE, PATIENCE_MS, Visitor, visitor
from tests.pages.screens import look_at
from tests.panel.living import Browser as Caller

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
MEMBERS = 1000
DRAFT = {
    "title": "Handwritten digits",
    "description": "Reads post codes on old letters.",
    "cause": "education",
    "data": "digits",
    "model": {**MLP, "width": 64},
    "recipe": {"name": "crowd", "lr": 0.1, "batch_size": 32, "batches_per_unit": 20},
}

INKED = "(pad) => pad.getContext('2d').getImageData(0, 0, 280, 280).data.some((ink) => ink > 0)"
SLOWLY = {"share": 0.1, "threads": 1}
LIMITS = {"in_use": SLOWLY, "idle": SLOWLY}


@dataclass(frozen=True)
class World:
    panel: Running
    caller: Caller
    finished: str
    running: str

    def members(self) -> list[str]:
        status = self.caller.ask("GET", f"/api/runs/{self.running}/status")
        return [one["name"] for one in status["members"]]

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Only so long does the run that goes on take a core."""
        self.caller.ask("POST", f"/api/runs/{self.running}/resume")
        try:
            yield
        finally:
            self.caller.ask("POST", f"/api/runs/{self.running}/pause")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A panel with a run that is over, one that goes on with two volunteers, and a machine lent."""
    home, slowly = tmp_path_factory.mktemp("screens"), ("--cpu", "10%", "--cpu-idle", "10%")
    with panel(home / "panel") as running:
        caller = Caller(running.url)
        finished = _hosted(caller, {**DRAFT, "stop": {"epochs": 40}}, helpers=1)
        caller.child(finished[0], "over")
        # It does not end here: it rests while nobody looks.
        going = _hosted(caller, {**DRAFT, "stop": {"epochs": 10_000}}, helpers=0)
        where = caller.ask("GET", f"/api/runs/{going[1]}/job")["routes"][0]
        caller.ask("POST", "/api/work", {"target": where, "limits": LIMITS})
        question = until(lambda: _question(caller), "the owner is asked")
        caller.ask("POST", "/api/work/answer", {"id": question, "answer": "once"})
        with (
            volunteer(home / "anna", where, "anna’s laptop", *slowly),
            volunteer(home / "ben", where, "ben’s computer", *slowly),
        ):
            found = World(running, caller, finished[1], going[1])
            with found.at_work():
                until(lambda: len(found.members()) == 4, "all are there")
            yield found


def _hosted(caller: Caller, draft: dict[str, object], *, helpers: int) -> tuple[str, str]:
    child = caller.ask("POST", "/api/host", {"draft": draft, "helpers": helpers})["run"]
    found = caller.child(child, "running", "failed")
    assert found["state"] == "running", found["error"]
    return child, found["run"]


def _question(caller: Caller) -> str | None:
    status = caller.ask("GET", "/api/work")["status"]
    return status["question"]["id"] if status and status["question"] else None


def test_start(browser: Browser, world: World) -> None:
    def go(guest: Visitor) -> None:
        guest.waits_for("machine", "Processor cores")
        guest.waits_for("now", "Hosting “Handwritten digits”")

    assert look_at(browser, world.panel.url, "start", go) == []


def test_host(browser: Browser, world: World) -> None:
    def go(guest: Visitor) -> None:
        guest.go("Host")
        guest.waits_for("choose-digits")
        with guest.page.expect_response("**/api/catalogue"):  # what was fetched is here now
            guest.choose("digits")
        expect(guest.see("data-note")).to_contain_text("not MNIST")
        expect(guest.see("data-problems")).to_have_count(0)
        guest.press("check-model")
        guest.waits_for("check-report", "This model can travel")

    assert look_at(browser, world.panel.url, "host", go) == []


def test_a_run_that_goes_on(browser: Browser, world: World) -> None:
    def go(guest: Visitor) -> None:
        guest.page.goto(f"{world.panel.base}/#/run/{world.running}")
        for name in ("anna’s laptop", "ben’s computer"):
            expect(guest.see("volunteers").get_by_text(name)).to_be_visible(timeout=PATIENCE_MS)
        guest.draw(ONE)
        guest.reads("1")
        anna = guest.see("volunteers").get_by_role("button", name="anna’s laptop")
        anna.focus()
        guest.page.keyboard.press("Enter")
        facts = guest.waits_for("volunteer-facts", re.compile(r"\d+ cores?, .*B of memory, \w"))
        expect(facts).to_contain_text("anna’s laptop")
        expect(anna).to_have_attribute("aria-expanded", "true")

    with world.at_work():
        assert look_at(browser, world.panel.url, "run", go) == []


def test_a_run_that_is_over(browser: Browser, world: World) -> None:
    def go(guest: Visitor) -> None:
        guest.page.goto(f"{world.panel.base}/#/run/{world.finished}")
        guest.waits_for("result", "Test accuracy")
        expect(guest.see("draw")).to_be_visible(timeout=PATIENCE_MS)

    assert look_at(browser, world.panel.url, "run-finished", go) == []


def test_runs(browser: Browser, world: World) -> None:
    def go(guest: Visitor) -> None:
        guest.go("Runs")
        title = guest.page.get_by_role("link", name="Handwritten digits", exact=True)
        expect(title).to_have_count(2)

    assert look_at(browser, world.panel.url, "runs", go) == []


def test_of_more_runs_than_are_listed_none_is_said_not_to_be_there(
    browser: Browser, world: World
) -> None:
    [one, *_] = world.caller.ask("GET", "/api/runs")
    listed = [{**one, "id": f"run-{n}"} for n in range(MOST_SHOWN)]
    with visitor(browser, world.panel.url) as guest:
        guest.page.route("**/api/runs", lambda route: route.fulfill(json=listed))
        guest.go("Runs")
        expect(guest.page.get_by_text(f"The newest {MOST_SHOWN} runs are listed")).to_be_visible()
        guest.page.goto(f"{world.panel.base}/#/run/older")
        missing = guest.page.get_by_text(f"“older” is not among the newest {MOST_SHOWN} runs")
        expect(missing).to_be_visible()
        del listed[0]  # now that is all there is
        guest.go("Runs")
        expect(guest.page.get_by_role("listitem")).to_have_count(MOST_SHOWN - 1)
        expect(guest.page.get_by_text("runs are listed")).to_have_count(0)
        guest.page.goto(f"{world.panel.base}/#/run/older")
        expect(guest.page.get_by_text("There is no run “older”")).to_be_visible()


def test_lend(browser: Browser, world: World) -> None:
    def go(guest: Visitor) -> None:
        guest.go("Lend")
        expect(guest.page.get_by_text("Handwritten digits").first).to_be_visible()

    with world.at_work():
        assert look_at(browser, world.panel.url, "lend", go) == []


def test_a_host_that_cannot_write_says_so(browser: Browser, world: World) -> None:
    status = world.caller.ask("GET", f"/api/runs/{world.running}/status")
    full = {**status["checkpoint"], "trouble": "CHECKPOINTS ARE PAUSED: the disk is full."}

    def stream(socket: WebSocketRoute) -> None:
        for event, data in (("hello", {"version": ""}), ("status", {**status, "checkpoint": full})):
            socket.send(json.dumps({"event": event, "data": data}))

    with visitor(browser, world.panel.url) as guest:
        guest.page.route_web_socket(re.compile("/api/events"), stream)
        guest.page.route("**/history", lambda route: route.abort())
        guest.page.goto(f"{world.panel.base}/#/run/{world.running}")
        guest.is_told("the disk is full")
        expect(guest.page).to_have_title("Handwritten digits – crowdgrad")
        expect(guest.see("curves")).not_to_contain_text("begins with the first update")


def test_a_run_names_its_folder_once_it_is_listed(browser: Browser, world: World) -> None:
    seen = world.caller.ask("GET", "/api/runs")
    listed = [{**one, "folder": f"runs/{one['id']}"} for one in seen]
    held: list[Route] = []
    with visitor(browser, world.panel.url, phone=True) as guest:
        guest.page.route("**/api/runs", lambda route: held.append(route))
        guest.page.goto(f"{world.panel.base}/#/run/{world.running}")
        result = guest.waits_for("result", "Best validation accuracy")
        words = [guest.see("result-folder"), guest.see("result-predict")]
        for one in words:
            expect(one).to_be_hidden()
        before = result.bounding_box()
        guest.page.route("**/api/runs", lambda route: route.fulfill(json=listed))
        for route in held:
            route.fulfill(json=listed)
        for one in words:
            expect(one).to_be_visible()
            expect(one).to_contain_text(f"runs/{world.running}")
        after = result.bounding_box()
        assert before is not None
        assert after is not None
        assert before["height"] == after["height"], "nothing moves"


def test_what_comes_after_its_page_was_left_is_not_looked_at(
    browser: Browser, world: World
) -> None:
    held: list[Route] = []
    with visitor(browser, world.panel.url) as guest:
        guest.page.route("**/history", lambda route: held.append(route))
        guest.page.goto(f"{world.panel.base}/#/run/{world.finished}")
        guest.expects_state("finished")
        guest.go("Runs")
        expect(guest.page.get_by_role("listitem").first).to_be_visible(timeout=PATIENCE_MS)
        assert held
        for route in held:
            with guest.page.expect_response("**/history"):
                route.continue_()
        guest.page.evaluate("() => new Promise((done) => setTimeout(done, 200))")
        assert guest.complaints == []


def test_a_model_that_does_not_answer_may_be_asked_again(browser: Browser, world: World) -> None:
    with visitor(browser, world.panel.url) as guest:
        guest.page.route("**/samples?*", lambda route: route.abort())
        guest.page.route("**/predict", lambda route: route.abort())
        guest.page.clock.install()
        guest.page.goto(f"{world.panel.base}/#/run/{world.finished}")
        again = guest.see("samples").get_by_role("button", name="Look again")
        for _ in range(5):  # so often it is asked by itself, some seconds apart
            guest.page.clock.run_for(4000)
        expect(again).to_be_visible(timeout=PATIENCE_MS)
        guest.page.unroute("**/samples?*")
        again.click()
        guest.waits_for("samples", "of 24 right")
        expect(again).to_have_count(0)
        guest.draw(ONE)
        guest.is_told("does not answer on this machine")
        guest.press("draw-clear")
        expect(guest.page.get_by_role("alert")).to_have_count(0)
        guest.draw(ONE, "right")
        assert not guest.see("draw").evaluate(INKED), "only the left button draws"


def test_of_a_thousand_volunteers_only_those_in_sight_are_in_the_page(
    browser: Browser, world: World
) -> None:
    status = world.caller.ask("GET", f"/api/runs/{world.running}/status")
    [first, *_] = status["members"]
    many = [{**first, "position": n, "id": f"{n:016x}", "name": f"v{n}"} for n in range(MEMBERS)]
    sockets: list[WebSocketRoute] = []

    def tells() -> None:
        told = {"event": "status", "data": {**status, "members": many}}
        sockets[-1].send(json.dumps(told))

    def stream(socket: WebSocketRoute) -> None:
        sockets.append(socket)
        socket.send(json.dumps({"event": "hello", "data": {"version": ""}}))
        tells()

    with visitor(browser, world.panel.url) as guest:
        guest.page.route_web_socket(re.compile("/api/events"), stream)
        guest.page.goto(f"{world.panel.base}/#/run/{world.running}")
        table = guest.waits_for("volunteers-scroll")
        rows = table.get_by_role("row")
        expect(rows.first).to_be_visible()
        assert rows.count() < 40
        best = guest.page.get_by_role("button", name=re.compile(r"^v3\b"))
        best.focus()
        many[3] = {**many[3], "share": 2.0}  # now it stands first
        tells()
        expect(rows.filter(has=best)).to_have_attribute("aria-rowindex", "2")
        expect(best).to_be_focused()
        expect(table.get_by_role("table")).to_have_attribute("aria-rowcount", f"{MEMBERS + 1}")
        table.evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
        expect(table.get_by_text(f"v{MEMBERS - 1}", exact=True)).to_be_visible()
        assert rows.count() < 40


@pytest.mark.slow
def test_twelve_pages_all_go_on_hearing(browser: Browser, world: World) -> None:
    """A browser opens six plain connections to one server: streams must not be among them."""
    with world.at_work(), visitor(browser, world.panel.url) as guest:
        pages = [guest.page.context.new_page() for _ in range(12)]
        for page in pages:
            page.goto(f"{world.panel.base}/#/work")
        for page in pages:
            figures = page.get_by_test_id("work-figures")
            before = figures.inner_text(timeout=PATIENCE_MS)
            expect(figures).not_to_have_text(before, timeout=PATIENCE_MS)
