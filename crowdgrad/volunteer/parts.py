"""Which bytes of a slot go to which server.

A host may leave the parameters to servers (`Admit.servers`), each with a part of the words. All it
says about them is a stranger's word: parts must be one vector, cut without a gap, and not every
address is dialled (`net.neighbourhood`).

As it travels, a word of the parameters takes two bytes or four, by the codec, and a word behind
them four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import CodecName, wire_place
from crowdgrad.errors import MessageError
from crowdgrad.net.neighbourhood import check_neighbourhood
from crowdgrad.net.transport.base import RELAYED

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - nobody listens there
"""Where a server is that runs on the host's own machine."""
WHAT = "its parameters are"
"""… at a server's address, as the host says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One server: where to dial it, what to say there, and its bytes of a slot."""

    host: str
    port: int
    token: str = field(repr=False)
    admission: int = 0
    key: str = ""
    """A pin of the server's key."""
    state: slice
    update: slice

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parts_of(
    places: Sequence[ServerPlace], spec: ProgramSpec, codec: CodecName, *, host: str
) -> tuple[Part, ...]:
    """What the host says of its servers, if that makes sense. `host`: the address it answered at.

    Raises MessageError where they do not hold every word once, NotDialled where we will not dial.
    """
    _check_cut(places, spec)
    return tuple(_part(place, spec.size, codec, host) for place in places)


def _check_cut(places: Sequence[ServerPlace], spec: ProgramSpec) -> None:
    starts = [0, *(place.stop for place in places)]
    updates = [0, *(place.update_stop for place in places)]
    whole = (starts[-1], updates[-1]) == (spec.state_words, spec.update_words)
    if not whole or any(
        place.start != state or place.start != update
        for place, state, update in zip(places, starts, updates, strict=False)
    ):
        raise MessageError(
            f"The host's {len(places)} servers do not hold its {spec.state_words} words once each.",
            advice="Tell the host; help another job.",
        )


def _part(place: ServerPlace, size: int, codec: CodecName, host: str) -> Part:
    name, port = machine_of(place.address), place.address.rpartition(":")[2]
    start = wire_place(codec, size, place.start)
    part = Part(
        host=host if name in ANYWHERE else name,
        port=int(port),
        token=place.token,
        admission=place.admission,
        key=place.key,
        state=slice(start, wire_place(codec, size, place.stop)),
        update=slice(start, wire_place(codec, size, place.update_stop)),
    )
    check_neighbourhood(part.host, host=host, what=WHAT)
    return part


def machine_of(address: str) -> str:
    """host:port without the port; of somebody behind a relay the relay's."""
    return address.removeprefix(RELAYED).rpartition(":")[0].strip("[]")
