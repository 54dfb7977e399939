"""Ways to people: can the caller be dialled, and who helps where nobody can be?"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from crowdgrad.matchmaker.api.answers import answer, signed
from crowdgrad.matchmaker.api.v1 import SIGNED
from crowdgrad.matchmaker.dialling import Dialling
from crowdgrad.matchmaker.doorkeeper import Doorkeeper
from crowdgrad.matchmaker.openapi import describe
from crowdgrad.net import rooms


def routes(
    doorkeeper: Doorkeeper,
    dialling: Dialling,
    *,
    relays: tuple[str, ...],
    wall: Callable[[], float],
) -> APIRouter:
    router = APIRouter(prefix="/v1")

    @router.get(
        "/relays",
        **describe("Relays for those whom nobody can dial.", rooms.RelayList, refuses=(429,)),
    )
    async def list_relays() -> Response:
        return answer(rooms.RelayList(relays=relays))

    @router.post(
        "/reach",
        **describe(
            "Can others dial you? You are dialled at the address your request comes from, at the "
            "ports you name, and whoever answers must have the key that signed. Of other "
            "addresses only those of the same private network are dialled, of names only those "
            "that stand for your address; ports 80, 443 and from 1024 on.",
            rooms.Reachability, body=rooms.Reach, refuses=SIGNED, signed=True,
        ),
    )  # fmt: skip
    async def reach(request: Request) -> Response:
        key, raw = await signed(request, doorkeeper)
        asked = rooms.decode_exactly(rooms.reach_body, raw)
        address = doorkeeper.address_of(request.scope)
        doorkeeper.admit_reach(key, address)
        observed = doorkeeper.own_address_of(request.scope)
        tried = await dialling.reach(
            bytes.fromhex(key), observed, asked.addresses, hosts=asked.hosting
        )
        now_ms = int(wall() * 1000)
        return answer(rooms.Reachability(observed=observed, tried=tried, now_ms=now_ms))

    return router
