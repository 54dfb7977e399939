"""What a volunteer tells whoever asks over HTTP, and from whom it takes wishes: real sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crowdgrad.domain.manners import Limits, Profile
from crowdgrad.net import control_file
from crowdgrad.volunteer import consent
from crowdgrad.volunteer.governor import Governor, free
from crowdgrad.volunteer.outcome import Outcome
from crowdgrad.volunteer.remote.api import served
from crowdgrad.volunteer.remote.desk import Desk, Work
from crowdgrad.volunteer.remote.status import Totals, WorkStatus
from tests.volunteer.test_consent import REQUEST
from tests.volunteer.test_remote_board import JOINED, WORKING


@dataclass
class Office:
    """A desk with its API, and whoever stands before it."""

    file: Path
    wished: list[str] = field(default_factory=list)
    one_job: bool = False
    governor: Governor = field(default_factory=free)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.desk = Desk(
            Work(
                name="ada",
                key="cd" * 8,
                governor=self.governor,
                totals=lambda: Totals(samples=9, credit=18.0, jobs=1, seconds=2.0),
                leave=lambda: self.wished.append("leave"),
                stop=lambda: self.wished.append("stop"),
                one_job=self.one_job,
            ),
            self.clock,
        )
        self.say = self.desk.watch(lambda event: None)

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    async def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any]:
        return await asyncio.to_thread(self._ask, method, path, body, headers)

    async def wish(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        entrance = control_file.read(self.file)
        assert entrance is not None
        return await self.ask(method, path, body, Authorization=f"Bearer {entrance.token}")

    def _ask(
        self, method: str, path: str, body: object, headers: dict[str, str]
    ) -> tuple[int, Any]:
        entrance = control_file.read(self.file)
        assert entrance is not None
        connection = http.client.HTTPConnection(*entrance.address, timeout=10)
        try:
            sent = None if body is None else json.dumps(body)
            kind = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, sent, {**kind, **headers})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()


def at(office: Callable[[], Office], scenario: Callable[[Office], Awaitable[None]]) -> None:
    async def main() -> None:
        here = office()
        async with served(here.desk, here.file, 0):
            await scenario(here)
        assert not here.file.exists(), "who is gone is not announced"

    asyncio.run(main())


def test_the_status_is_what_the_schema_says(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        office.say(JOINED)
        code, told = await office.ask("GET", "/status")
        assert code == 200
        status = msgspec.convert(told, WorkStatus)
        assert (status.name, status.state, status.totals.credit) == ("ada", "starting", 18.0)
        assert status.job is not None
        assert status.job.title == "Digits"
        _, schema = await office.ask("GET", "/openapi.json")
        kinds = schema["components"]["schemas"]
        assert set(kinds["WorkStatus"]["properties"]) == set(told)
        assert set(kinds["JobSeen"]["properties"]) == set(told["job"])
        assert (await office.ask("GET", "/healthz"))[1] == {"status": "ok"}

    at(lambda: Office(tmp_path / "work.json"), scenario)


WISHES = [("POST", "pause"), ("POST", "resume"), ("PUT", "limits"), ("POST", "answer"),
          ("POST", "next"), ("POST", "stop")]  # fmt: skip


@pytest.mark.parametrize(("method", "name"), WISHES)
def test_a_wish_needs_the_token(tmp_path: Path, method: str, name: str) -> None:
    async def scenario(office: Office) -> None:
        body = {"id": "1", "answer": "no"}
        for headers in ({}, {"Authorization": "Bearer guessed"}):
            code, told = await office.ask(method, f"/{name}", body, **headers)
            assert (code, "needs the token" in told["detail"]) == (401, True)
        assert office.wished == []
        assert not office.governor.paused

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_nobody_from_elsewhere_is_answered(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            code, told = await office.ask("GET", "/status", **headers)
            assert code == 403, told
        code, told = await office.ask("GET", "/status", Host="evil.example")
        assert "API of a volunteer" in told["detail"]

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        assert stat.S_IMODE(office.file.stat().st_mode) == 0o600
        assert set(json.loads(office.file.read_text())) == {"url", "token", "pid"}

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_pause_and_resume(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        office.say(JOINED)
        office.say(WORKING)
        code, told = await office.wish("POST", "/pause", {"seconds": 7200})
        assert (code, told["state"], told["changed"], told["holds"]) == (200, "paused", True, True)
        assert office.governor.paused_until is not None
        assert (await office.ask("GET", "/status"))[1]["effort"]["share"] == 0
        code, told = await office.wish("POST", "/resume")
        assert (told["state"], told["changed"], told["holds"]) == ("working", True, True)
        assert (await office.wish("POST", "/resume"))[1]["changed"] is False
        await office.wish("POST", "/pause", {"seconds": None})
        assert (office.governor.paused, office.governor.paused_until) == (True, None)
        for wrong in (-1, 0, 1e12, "long"):
            assert (await office.wish("POST", "/pause", {"seconds": wrong}))[0] == 422

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_limits_are_set_whole_and_only_where_they_make_sense(tmp_path: Path) -> None:
    wanted = Limits(in_use=Profile(share=0.25, threads=2), only_when_idle=True, hours="22:00-07:00")

    async def scenario(office: Office) -> None:
        told = msgspec.to_builtins(wanted)
        code, answer = await office.wish("PUT", "/limits", told)
        assert (code, answer["changed"]) == (200, True)
        assert office.governor.limits == wanted
        assert (await office.ask("GET", "/status"))[1]["limits"] == told
        for wrong in ({"in_use": {"share": 7}}, {"hours": "tonight"}, {"cache_mb": "much"}, []):
            assert (await office.wish("PUT", "/limits", wrong))[0] == 422
        misspelt = {**told, "only_when_idel": True, "idle": {"cores": 2}}
        code, answer = await office.wish("PUT", "/limits", misspelt)
        assert (code, answer["detail"]) == (422, "No limit is called only_when_idel, cores.")
        assert office.governor.limits == wanted

    at(lambda: Office(tmp_path / "work.json"), scenario)


@pytest.mark.parametrize(("reply", "heard"), [("once", "yes"), ("always", "always"), ("no", "no")])
def test_a_question_waits_for_its_answer(tmp_path: Path, reply: str, heard: str) -> None:
    async def scenario(office: Office) -> None:
        nothing = await office.wish("POST", "/answer", {"id": "1", "answer": "no"})
        assert (nothing[1]["changed"], nothing[1]["holds"]) == (False, False)
        asking = asyncio.ensure_future(office.desk.asking(None)(REQUEST))
        await asyncio.sleep(0)
        _, told = await office.ask("GET", "/status")
        assert (told["state"], told["question"]["title"]) == ("asking", REQUEST.title)
        assert any(line.startswith("it sees: ") for line in told["question"]["lines"])
        number = told["question"]["id"]
        old = await office.wish("POST", "/answer", {"id": "0", "answer": reply})
        assert old[1]["changed"] is False
        assert (await office.wish("POST", "/answer", {"id": number, "answer": "yes"}))[0] == 422
        code, answer = await office.wish("POST", "/answer", {"id": number, "answer": reply})
        assert (code, answer["changed"]) == (200, True)
        assert await asking == heard
        assert (await office.ask("GET", "/status"))[1]["question"] is None

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_a_host_without_a_key_is_agreed_to_once_only(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        asking = asyncio.ensure_future(office.desk.asking(None)(replace(REQUEST, host="")))
        await asyncio.sleep(0)
        await office.wish("POST", "/answer", {"id": "1", "answer": "always"})
        assert await asking == "yes"

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_the_terminal_may_answer_first_and_a_question_may_go(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        async def typed(request: consent.Request) -> consent.Answer:
            return "always"

        async def never(request: consent.Request) -> consent.Answer:
            await asyncio.Event().wait()
            raise AssertionError

        assert await office.desk.asking(typed)(REQUEST) == "always"
        asking = asyncio.ensure_future(office.desk.asking(never)(REQUEST))
        await asyncio.sleep(0)
        assert office.desk.status().question is not None
        asking.cancel()  # the host has gone
        await asyncio.gather(asking, return_exceptions=True)
        assert office.desk.status().question is None

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_another_job_and_the_end(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        _, told = await office.wish("POST", "/next")
        assert (told["changed"], office.wished) == (False, [])
        office.say(JOINED)
        _, told = await office.wish("POST", "/next")
        assert (told["changed"], office.wished) == (True, ["leave"])
        office.desk.ended(Outcome(reason="you asked", left=True, samples=1, credit=None))
        _, told = await office.wish("POST", "/stop")
        assert (told["changed"], office.wished) == (True, ["leave", "stop"])
        office.desk.close("over")
        for method, path, body in (("POST", "/stop", None), ("POST", "/pause", {}),
                                   ("POST", "/next", None)):  # fmt: skip
            _, told = await office.wish(method, path, body)
            assert (told["state"], told["changed"]) == ("over", False)

    at(lambda: Office(tmp_path / "work.json"), scenario)


def test_there_is_no_other_where_one_job_was_named(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        office.say(JOINED)
        _, told = await office.wish("POST", "/next")
        assert (told["changed"], told["holds"], office.wished) == (False, False, [])

    at(lambda: Office(tmp_path / "work.json", one_job=True), scenario)


def test_events_are_told_when_they_change_until_it_is_over(tmp_path: Path) -> None:
    async def scenario(office: Office) -> None:
        entrance = control_file.read(office.file)
        assert entrance is not None
        heard: list[str] = []
        first = asyncio.Event()
        loop = asyncio.get_running_loop()

        def listen() -> None:
            connection = http.client.HTTPConnection(*entrance.address, timeout=30)
            connection.request("GET", "/events")
            for line in connection.getresponse():
                heard.append(line.decode().rstrip())
                loop.call_soon_threadsafe(first.set)
            connection.close()

        listening = asyncio.create_task(asyncio.to_thread(listen))
        await first.wait()
        office.say(JOINED)
        office.desk.close("It is over.")
        await listening
        told = [json.loads(line[6:]) for line in heard if line.startswith("data: ")]
        assert heard[0] == "event: status"
        assert (told[0]["state"], told[-1]["state"]) == ("starting", "over")

    at(lambda: Office(tmp_path / "work.json"), scenario)
