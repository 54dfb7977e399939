"""The public page: what anybody may see of a job, and nothing else."""

from __future__ import annotations

import asyncio
from argparse import ArgumentTypeError
from dataclasses import asdict, replace

import pytest
import segno
from starlette.testclient import TestClient

from crowdgrad import webapp
from crowdgrad.cli.host_arguments import page_place
from crowdgrad.host.remote import page as page_module
from crowdgrad.host.remote.page import create_page
from crowdgrad.host.telling.job_page import Entry, JobPage, eta_s, job_page, qr_svg
from crowdgrad.host.telling.status import Status
from crowdgrad.host.telling.taking import take_status
from tests.host import small

ENTRY = Entry(
    title="<b>Digits</b>", cause="teaching", description="for </script> all", contact="me",
    host="0123456789abcdef", code="K7Q-2MP", local_code="", link="https://m.example/j/K7Q-2MP",
    routes=(), matchmaker="https://m.example",
)  # fmt: skip


def a_status() -> Status:
    async def make() -> Status:
        training = small.training()
        training.join(0.0, small.volunteer("worker0"), own=True)
        training.join(0.0, small.volunteer("ada"), own=False)
        return take_status(training, 1.0)

    return asyncio.run(make())


def a_page() -> JobPage:
    return job_page(ENTRY, a_status(), ())


def client(page: JobPage | None) -> TestClient:
    return TestClient(create_page(lambda: page))


def test_members_are_names_never_keys() -> None:
    with client(a_page()) as web:
        reply = web.get("/job.json")
    told = reply.json()
    assert told["members"] == [{"name": "ada", "samples": 0, "share": 0.0, "connected": True}]
    assert (told["here"], told["took_part"]) == (1, 1), "the host's own worker is no helper"
    assert set(told) == set(asdict(a_page()))
    assert reply.headers["content-security-policy"] == webapp.HEADERS["Content-Security-Policy"]


def test_the_page_has_the_headers_and_a_strangers_words_stay_words() -> None:
    with client(a_page()) as web:
        reply = web.get("/")
    for name, value in webapp.HEADERS.items():
        assert reply.headers[name] == value
    assert "<b>Digits" not in reply.text
    assert "&lt;b&gt;Digits" in reply.text
    assert '"serves": "job"' in reply.text


@pytest.mark.parametrize("path", ["/status", "/openapi.json", "/docs", "/log", "/assets/../x"])
def test_nothing_else_is_there(path: str) -> None:
    with client(a_page()) as web:
        assert web.get(path).status_code == 404


def test_it_takes_no_wishes() -> None:
    with client(a_page()) as web:
        for path in ("/stop", "/rate", "/predict"):
            assert web.post(path).status_code == 404
        assert web.post("/job.json").status_code == 405


def test_before_it_is_open_it_says_so() -> None:
    with client(None) as web:
        assert web.get("/job.json").status_code == 503
        assert "not open yet" in web.get("/").text


def test_however_often_strangers_ask_everything_is_made_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted(name: str) -> None:
        make = getattr(page_module, name)
        monkeypatch.setattr(page_module, name, lambda told: made.append(name) or make(told))

    counted("document")
    counted("job_page_as_json")
    monkeypatch.setattr(segno, "make_qr", lambda *a, **b: made.append("qr") or segno.make(*a, **b))
    qr_svg.cache_clear()
    now = [a_page()]
    with TestClient(create_page(lambda: now[0])) as web:
        first = [[web.get(path).text for path in ("/", "/job.json", "/qr.svg")] for _ in range(3)]
        now[0] = replace(now[0], samples=7)
        assert web.get("/job.json").json()["samples"] == 7, "and anew when something has changed"
    assert first[0] == first[1] == first[2]
    assert sorted(made) == ["document", "job_page_as_json", "job_page_as_json", "qr"]


def test_how_long_the_rest_takes() -> None:
    status = replace(a_status(), phase="training", elapsed_s=30.0, progress=0.25)
    assert eta_s(status) == pytest.approx(90.0)
    assert eta_s(replace(status, paused=True)) is None
    assert eta_s(replace(status, progress=0.0)) is None
    assert eta_s(replace(status, phase="over", progress=1.0)) is None


def test_where_a_page_is_served() -> None:
    assert page_place("127.0.0.1:8080") == ("127.0.0.1", 8080)
    assert page_place("[::1]:0") == ("::1", 0)
    assert page_place("8080")[1] == 8080
    for wrong in ("", "x", "1.2.3.4:", "70000", "a:b"):
        with pytest.raises(ArgumentTypeError):
            page_place(wrong)
