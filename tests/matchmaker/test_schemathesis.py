"""The service does what its own description says, whatever it is asked; and nothing leaks.

schemathesis makes requests from the OpenAPI document, sensible ones and others; some of them are
signed here, rightly or not. They go to the real app over real HTTP, with jobs of every visibility
in its store. Its pytest plugin is switched off in pyproject.toml: it slows the start of every run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crowdgrad.domain.job import JobId, Member
from crowdgrad.domain.matching import (
    Code,
    Credit,
    Gift,
    JobListing,
    JobRecord,
    Offer,
    Visibility,
)
from crowdgrad.errors import CrowdgradError, Unreachable, tree
from crowdgrad.matchmaker.app import create_service
from crowdgrad.matchmaker.desk import Rules
from crowdgrad.matchmaker.doorkeeper import Doorkeeper
from crowdgrad.matchmaker.limits import Rates
from crowdgrad.net import rooms, signing
from crowdgrad.net.http import HttpLimits, HttpServer
from crowdgrad.net.identity import Identity, guest
from crowdgrad.net.ports import bind
from crowdgrad.planner.matchmaking import Patience
from crowdgrad.store.memory import MemoryStore
from tests.matchmaker.test_openapi import ROUTES, SIGNED

HOST, FRIEND, STRANGER = guest("fuzzed host"), guest("friend"), guest("stranger")
SECRET = "Xq7secretXq7"
"""Part of everything that no stranger may ever be told."""
ADDRESS = "203.0.113.77:47811"
JOBS: dict[Visibility, tuple[str, str]] = {
    "public": ("open-job-1", "K7Q-2MP"),
    "link": ("link-job-1", "B3F-9TX"),
    "group": ("group-job-1", "Z4N-HH8"),
}
NAMES = [name for pair in JOBS.values() for name in pair] + [HOST.id, FRIEND.id, "k7q2mp", ".."]
LEAKS = re.compile(
    "|".join(
        (
            SECRET,
            re.escape(ADDRESS.partition(":")[0]),
            "47811",
            HOST.public.hex(),
            r"Traceback|site-packages|\.py\"|0x[0-9a-f]{8}",
            r"(postgres\w*|sqlite|memory):",
            re.escape(os.getcwd()),
        )
    )
)
CODES = {error.code for error in tree(CrowdgradError)}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


RULES = Rules(patience=Patience(suspect_after_s=1e6, gone_after_s=2e6), forget_after_s=3e6)
"""However long the tests take, the hosts in the store are not given up."""

RATES = Rates(
    joins_per_s=1e6,
    address_joins_per_s=1e6,
    key_joins_per_s=1e6,
    key_reaches_per_s=1e6,
    address_reaches_per_s=1e6,
)
"""Nobody is refused just for asking often."""


def job(visibility: Visibility) -> JobRecord:
    name, code = JOBS[visibility]
    hidden = SECRET if visibility == "group" else "shown"
    offer = Offer(
        id=JobId(name),
        title=f"title {hidden}",
        cause="<i>tests</i>",
        address=ADDRESS,
        key=HOST.id,
        minimum=1,
        maximum=8,
        hyperparameters={"learning_rate": 0.05, "name": "sgd", "shuffle": True},
        description=f"two\nlines, {hidden} & <b>",
        contact=hidden,
        visibility=visibility,
        invited=frozenset({FRIEND.id}) if visibility == "group" else frozenset(),
    )
    listing = JobListing(offer=offer, state="running", published_at=1e9, code=Code(code))
    return JobRecord(listing=listing, owner=HOST.public.hex())


def seeded() -> MemoryStore:
    """A job of every visibility, and a friend who has helped each of them."""
    store = MemoryStore()
    gift = Gift(units=3, samples=300, flop=1e12)
    for visibility, (name, _) in JOBS.items():
        store.put_job(job(visibility))
        store.add_member(JobId(name), Member(position=1, id=FRIEND.id, name=SECRET))
        credit = Credit(
            job=JobId(name),
            title=job(visibility).listing.title,
            host=HOST.id,
            volunteer=FRIEND.id,
            reported=gift,
            reported_at=1e9,
            signed=gift,
            signature=FRIEND.sign_text(
                signing.credit_text(JobId(name), HOST.id, FRIEND.id, gift)
            ).hex(),
        )
        store.put_credit(credit)
    return store


async def nobody_answers(host: str, port: int, public: bytes) -> None:
    """Nothing on this machine is dialled."""
    raise Unreachable(f"Nobody answers at {host}:{port}.")


class Served:
    """The real app under the real server, in a thread of its own."""

    def __init__(self) -> None:
        self.url = ""
        self._stop: Callable[[], None] = lambda: None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        doorkeeper = Doorkeeper(wall=time.time, clock=time.monotonic, rates=RATES)
        service = create_service(
            seeded(),
            rules=RULES,
            doorkeeper=doorkeeper,
            public_url="https://match.example.org",
            relays=("relay:relay.example.org:8702",),
            dial=nobody_answers,
        )
        server = HttpServer(
            service.app,
            bind("127.0.0.1", 0),
            max_message_bytes=rooms.MAX_REQUEST_BYTES,
            limits=HttpLimits(),
        )
        try:
            await server.start()
            self.url = f"http://{server.address}"
            self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
            self._ready.set()
            await stopped.wait()
            await server.stop()
        finally:
            self._ready.set()

    def __enter__(self) -> Served:
        self._thread.start()
        self._ready.wait(30)
        assert self.url, "the server has not started"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served() as running:
        yield running


@pytest.fixture(scope="module")
def schema(served: Served) -> Any:
    from schemathesis import openapi

    return openapi.from_url(f"{served.url}/openapi.json")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    import requests

    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.fixture(scope="module")
def web(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, trust_env=False, timeout=20) as client:
        yield client
        assert client.get("/healthz").json()["ok"] is True, "it survived"


# -- what is signed ---------------------------------------------------------------------------


def signature(
    who: Identity, url: str, method: str, path: str, *, skew_ms: int = 0, body: bytes = b""
) -> str:
    proof = signing.sign(
        who,
        method=method,
        authority=url.removeprefix("http://"),
        path=path,
        body=body,
        time_ms=int(time.time() * 1000) + skew_ms,
        random_bytes=secrets.token_bytes,
    )
    return signing.to_header(proof)


def authorizations(
    url: str, method: str, path: str, body: bytes = b""
) -> st.SearchStrategy[str | None]:
    """Right ones of a stranger, and others."""
    right = signature(STRANGER, url, method, path, body=body)
    flipped = st.integers(0, len(right) - 1).map(
        lambda at: right[:at] + chr(32 + (ord(right[at]) + 1) % 90) + right[at + 1 :]
    )
    return st.one_of(
        st.just(right),
        st.none(),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=400).map(str.strip),
        flipped,
        st.sampled_from([
            signature(STRANGER, url, method, path, skew_ms=3_600_000),
            signature(STRANGER, url, method, path, skew_ms=-3_600_000),
            signature(STRANGER, url, "PUT", path),
            signature(STRANGER, url, method, path, body=b"x"),
            signature(STRANGER, url, method, f"{path}x"),
            signature(STRANGER, "http://elsewhere", method, path),
            "Bearer abc", "Basic YTpi", "Crowdgrad", right + "," + right, right.upper(),
        ]),
    )  # fmt: skip


# -- schemathesis -----------------------------------------------------------------------------


def fuzz(
    schema: Any,
    session: Any,
    served: Served,
    route: tuple[str, str],
    examples: int,
    *,
    derandomize: bool,
) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    path, verb = route
    operation = schema[path][verb.upper()]
    modes = [GenerationMode.POSITIVE]
    if "{" in path:
        modes.append(GenerationMode.NEGATIVE)

    @given(data=st.data())
    @settings(
        max_examples=examples,
        derandomize=derandomize,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(modes))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        for name in case.path_parameters:
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(NAMES))
        headers = {"Accept": data.draw(st.sampled_from(["*/*", "text/html", "application/json"]))}
        if route in SIGNED:
            body = json.dumps(case.body).encode() if verb == "post" else b""
            at = served.url, verb.upper(), case.formatted_path
            header = data.draw(authorizations(*at, body))
            headers |= {} if header is None else {"Authorization": header}
        response = case.call(session=session, headers=headers, timeout=20)
        case.validate_response(response, checks=checks)
        check_no_leak(response.status_code, dict(response.headers), response.content)

    ask()


def check_no_leak(status: int, headers: dict[str, Any], body: bytes) -> None:
    told = json.dumps({name: str(value) for name, value in headers.items()})
    text = body.decode()
    for part in (told, text):
        found = LEAKS.search(part)
        assert found is None, f"{found and found[0]!r} in {part[:2000]}"
    if status >= 400 and text.startswith("{"):
        problem = json.loads(text)
        assert problem["code"] in CODES
        assert problem["message"]


@pytest.mark.parametrize("route", sorted(ROUTES), ids=lambda route: f"{route[1]} {route[0]}")
def test_every_route_keeps_to_its_description(
    schema: Any, session: Any, served: Served, web: httpx.Client, route: tuple[str, str]
) -> None:
    examples = 40 if "{" in route[0] or route in SIGNED else 5
    fuzz(schema, session, served, route, examples, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("route", sorted(ROUTES), ids=lambda route: f"{route[1]} {route[0]}")
def test_and_does_so_at_length(
    schema: Any, session: Any, served: Served, web: httpx.Client, route: tuple[str, str]
) -> None:
    examples = 600 if "{" in route[0] or route in SIGNED else 50
    fuzz(schema, session, served, route, examples, derandomize=False)


def test_asked_rightly_it_says_of_each_address_why_it_was_not_dialled(
    served: Served, web: httpx.Client
) -> None:
    """What the fuzzing signs is not always right: this is."""
    body = json.dumps({"addresses": ["*:8701", "192.0.2.1:8701"]}).encode()
    header = signature(STRANGER, served.url, "POST", "/v1/reach", body=body)
    answer = web.post("/v1/reach", content=body, headers={"Authorization": header})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert said["observed"] == ""
    assert [one["reached"] for one in said["tried"]] == [False, False]
    assert all(one["why"].startswith("not dialled: ") for one in said["tried"])
    check_no_leak(200, dict(answer.headers), answer.content)


# -- by hand ----------------------------------------------------------------------------------


def filled(path: str) -> str:
    return re.sub(
        r"\{key_id\}", FRIEND.id, re.sub(r"\{(code|job_or_code|job_id)\}", "k7q-2mp", path)
    )


@pytest.mark.parametrize("path", sorted({path for path, _ in ROUTES}))
def test_other_methods_are_refused_with_the_right_ones(web: httpx.Client, path: str) -> None:
    known = {verb.upper() for other, verb in ROUTES if filled(other) == filled(path)}
    for method in METHODS:
        if method in known:
            continue
        answer = web.request(method, filled(path))
        assert answer.status_code == 405, method
        assert set(answer.headers["allow"].split(", ")) <= known
        if method != "HEAD":
            assert answer.json()["code"] in CODES


def test_a_job_for_a_group_is_not_there_for_anybody_else(web: httpx.Client) -> None:
    for route in ("/v1/jobs", "/j"):
        for name in JOBS["group"]:
            missing = "nothing-1" if "job" in name else "222-222"
            found, other = web.get(f"{route}/{name}"), web.get(f"{route}/{missing}")
            assert (found.status_code, other.status_code) == (404, 404)
            assert found.text.replace(name, "X") == other.text.replace(missing, "X")


def test_only_public_jobs_are_listed(web: httpx.Client) -> None:
    listed = web.get("/v1/jobs").json()
    assert [job["id"] for job in listed["jobs"]] == ["open-job-1"]
    assert listed["total"] == 1
    front = web.get("/", headers={"Accept": "text/html"}).text
    assert "K7Q-2MP" in front
    assert "B3F-9TX" not in front
    assert web.get("/v1/jobs/b3f9tx").json()["visibility"] == "link"


def test_what_a_key_gave_does_not_name_jobs_that_are_not_listed(web: httpx.Client) -> None:
    for answer in (web.get(f"/v1/keys/{FRIEND.id}"), web.get(f"/k/{FRIEND.id}")):
        assert answer.status_code == 200
        assert "title shown" in answer.text, "of the public job"
        for visibility in ("link", "group"):
            assert JOBS[visibility][0] not in answer.text
    assert HOST.id in web.get(f"/v1/keys/{FRIEND.id}").text
    assert web.get(f"/v1/keys/{HOST.id}").text.count(FRIEND.id) == 1


def test_a_host_sees_its_own_address_and_whom_it_invited(served: Served, web: httpx.Client) -> None:
    header = signature(HOST, served.url, "GET", "/v1/me")
    kept = web.get("/v1/me", headers={"Authorization": header}).json()
    assert [job["address"] for job in kept["jobs"]] == [ADDRESS] * 3
    assert [job["invited"] for job in kept["jobs"]] == [[FRIEND.id], [], []]
    again = web.get("/v1/me", headers={"Authorization": header})
    assert again.status_code == 401, "a signature serves once"
    check_no_leak(401, dict(again.headers), again.content)


@pytest.mark.parametrize("path", sorted(filled(path) for path, verb in ROUTES if verb == "get"))
def test_browsers_are_kept_from_loading_and_framing(web: httpx.Client, path: str) -> None:
    for asked in (path, f"{path}/no-such-thing"):
        answer = web.get(asked, headers={"Accept": "text/html"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
        if answer.headers["content-type"].startswith(("text/html", "image/svg")):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
