"""Hosts on the local network: which are wanted, and each once."""

from __future__ import annotations

import asyncio

from crowdgrad.domain.codes import code_of, local_code
from crowdgrad.domain.matching import Wants
from crowdgrad.domain.routes import Route
from crowdgrad.net.identity import digest_of, guest
from crowdgrad.net.nearby import Nearby
from crowdgrad.volunteer import neighbours
from tests.virtual_time import run_virtual

ADA, BEN = guest("ada"), guest("ben")


def near(who: object = ADA, job: str = "digits-1", cause: str = "") -> Nearby:
    key = digest_of(who.public)  # type: ignore[attr-defined]
    route = Route(host="192.0.2.1", port=8701)
    return Nearby(key=key, job=job, title="Digits", cause=cause, routes=(route,))


class Watching:
    def __init__(self, *nearby: Nearby) -> None:
        self.changed = asyncio.Event()
        self.nearby = nearby

    def hear(self, *nearby: Nearby) -> None:
        self.nearby = nearby
        self.changed.set()


def test_what_they_say_must_suit() -> None:
    assert neighbours.suits(Wants())(near())
    assert neighbours.suits(Wants(hosts=frozenset({ADA.id})))(near())
    assert not neighbours.suits(Wants(hosts=frozenset({BEN.id})))(near())
    assert neighbours.suits(Wants(job="digits-1"))(near())
    assert not neighbours.suits(Wants(job="other-1"))(near())
    only = Wants(causes=("climate",), only_causes=True)
    assert not neighbours.suits(only)(near())
    assert neighbours.suits(only)(near(cause="climate"))


def test_a_code_is_that_of_one_key() -> None:
    assert neighbours.has_code(local_code(ADA.public))(near())
    assert not neighbours.has_code(local_code(BEN.public))(near())


def test_whoever_answers_must_have_the_announced_key() -> None:
    where = neighbours.where(near())
    assert (where.key, str(where)) == (digest_of(ADA.public), "192.0.2.1:8701")


def test_nobody_comes_within_the_time() -> None:
    assert run_virtual(neighbours.one(Watching(), lambda near: True, 2.0)) is None


def test_each_is_visited_once_and_a_late_one_as_well() -> None:
    async def main() -> list[str]:
        watching, visited = Watching(near(), near(BEN)), []

        async def visit(found: Nearby) -> bool:
            visited.append(found.key)
            if len(visited) == 2:
                asyncio.get_running_loop().call_later(1.0, watching.hear, near(), near(ADA, "b-1"))
            return True

        going = neighbours.Round(watching, lambda near: True, visit)
        assert await going.go(2.0)
        return visited

    ada, ben = digest_of(ADA.public), digest_of(BEN.public)
    assert run_virtual(main()) == [ada, ben, ada]


def test_after_the_last_one_it_ends() -> None:
    async def main() -> bool:
        async def visit(found: Nearby) -> bool:
            return False

        return await neighbours.Round(Watching(near()), lambda near: True, visit).go(None)

    assert run_virtual(main()) is False


def test_whoever_typed_a_code_that_nobody_here_has_is_told_so() -> None:
    code = code_of("0123456789abcdef")
    assert f"has the code {code} so far. Compare" in neighbours.not_here(code, ())
    assert "; one other host is here. Compare" in neighbours.not_here(code, (near(),))
    assert "; 2 other hosts are here. Compare" in neighbours.not_here(code, (near(), near()))
