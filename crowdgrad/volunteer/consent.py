"""Whether this machine's owner wants to help this host, asked before its first unit.

Who hosts, what for, what it costs here, what the host sees and what it cannot: `lines` says all
that in plain words. `decide` is the order in which an answer is found without asking; only where
nothing is known of the host, and a person sits at the terminal, is there a question. A host that
has proven no key cannot be recognised again, so a yes to it holds for this job only.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal

from crowdgrad.domain import cards
from crowdgrad.domain.data import NO_CARD, Card
from crowdgrad.errors import CrowdgradError, one_line
from crowdgrad.volunteer.hosts import Known, KnownHosts
from crowdgrad.volunteer.parts import machine_of

logger = logging.getLogger(__name__)

WIDTH = 80
LABEL = 13
SEES = (
    "the name you chose, your key's fingerprint, your network address, this machine's number of "
    "cores and size of memory, what computes here and in which version, which parts of its "
    "data you hold, when and how fast you work, and why a piece of work fails or you leave. It "
    "tells the other volunteers your name and fingerprint."
)
NEVER_SEES = "your files, your keys, your screen, other programs, and what else this machine does."
NO_CODE = (
    "Nothing the host wrote is run here: its model is a graph of arithmetic, checked against a "
    "list of what is allowed and computed at low priority by a process of its own."
)
SERVERS = (
    "the numbers go to and come from others, which see your network address and fingerprint, too:"
)
SERVERS_NAMED = 8
MAX_SERVER = 64
MAX_DESCRIPTION = 400
"""Characters of it that are shown: what follows must stay in sight."""
MAX_CONTACT = 120
MAX_CARD = 160
"""Characters of each thing the data's card says."""
WALLED = "all hold here: what computes reaches no network, no file and no other program."


Shares = Literal["no", "dial", "listen"]
EXCHANGES: dict[Shares, str] = {
    "no": "",
    "dial": "Its data is exchanged with other volunteers that this machine dials; they see its "
    "address. With the setting share = no it comes from the host alone.",
    "listen": "Its data is exchanged with other volunteers; they see this machine's address and "
    "may dial it. With the setting share = no it comes from the host alone.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a host wants of this machine."""

    host: str
    """Fingerprint of the key the host has proven; empty where it has proven none."""
    host_name: str
    address: str
    job: str
    title: str
    cause: str
    program: str
    """Hash of the program: what a refusal of this job is remembered by."""
    memory_bytes: int
    traffic_bytes: int
    """Program, manifest and training data, once."""
    exchange_bytes: int
    """What goes both ways for one unit."""
    disk_bytes: int
    walls: tuple[str, ...]
    """Protections that do not hold on this machine, in words."""
    own_model: bool = False
    """The owner's own model computes, outside the walls."""
    description: str = ""
    contact: str = ""
    """What the host has published of its job, and where people reach it."""
    servers: tuple[str, ...] = ()
    """Addresses at which the parameters are kept, where the host does not keep them itself."""
    data: str = ""
    """The title of what it trains on."""
    card: Card = NO_CARD
    """What its host says of that."""
    growing: bool = False
    """More data may come while it is trained on."""
    shares: Shares = "no"
    """Whether data is exchanged with other volunteers, and they may dial this machine."""
    again: bool = False
    """The data is larger than the memory lent: what the disk may not keep of it comes again."""

    @property
    def machines(self) -> list[str]:
        """Where these are: ports may change from one start to the next."""
        return sorted({machine_of(address) for address in self.servers})


Consent = Callable[[Request], Awaitable[tuple[bool, str]]]
"""Whether the owner agrees, and why or why not: a clause that follows a colon."""
Answer = Literal["yes", "always", "no"]
Ask = Callable[[Request], Awaitable[Answer]]
"""The question itself, to a person. “Always” only where the host has proven its key."""


async def always(request: Request) -> tuple[bool, str]:
    return True, "nobody needs to be asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What is known before anybody is asked."""

    own: bool = False
    """This is the host's own worker: it was started with the host's token."""
    known: Known | None = None
    listed: bool = False
    """The host is in the setting `trusted_hosts`."""
    yes: bool = False
    person: bool = False
    """Somebody sits at the terminal who can be asked."""


def decide(request: Request, now: Circumstances) -> tuple[bool | None, str]:
    """Yes, no, or None: ask; and why."""
    status = now.known.status if now.known is not None else None
    if now.own:
        return True, "this is the host's own worker"
    if now.known is not None and status == "blocked":
        return False, f"you blocked this host on {_day(now.known.first)}"
    if request.host and now.listed:
        return True, "the host is in your setting trusted_hosts"
    if now.known is not None and status == "trusted":
        return True, f"the host is on your list of trusted hosts since {_day(now.known.first)}"
    if now.known is not None and status == "agreed":
        return True, f"you agreed to help this host on {_day(now.known.first)}"
    if now.yes:
        return True, "--yes was given"
    if now.person:
        return None, "nobody here has agreed to help this host yet"
    return (
        False,
        f"nobody is at a terminal to be asked, there was no --yes, and {_stranger(request)}",
    )


class Owner:
    """The machine's owner, as far as the agent is concerned: a `Consent`."""

    def __init__(
        self,
        known: KnownHosts,
        *,
        clock: Callable[[], float],
        listed: frozenset[str] = frozenset(),
        own: bool = False,
        yes: bool = False,
        ask: Ask | None = None,
    ) -> None:
        """`ask`: None where nobody can be asked. `clock`: seconds since 1970."""
        self._known = known
        self._clock = clock
        self._listed = listed
        self._own = own
        self._yes = yes
        self._ask = ask
        self._declined: set[str] = set()
        """Hosts that have had their no in this session: another job's name does not ask again."""
        self._said: dict[tuple[str, ...], bool] = {}
        """Answers of this session: a job that comes back after a pause is not asked about again."""

    async def __call__(self, request: Request) -> tuple[bool, str]:
        """Raises SettingError where the list of hosts makes no sense."""
        about = (request.host, request.job, request.program, *request.machines)
        known = self._known.get(request.host) if request.host else None
        circumstances = Circumstances(
            own=self._own,
            known=known,
            listed=request.host in self._listed,
            yes=self._yes,
            person=self._ask is not None,
        )
        agreed, why = decide(request, circumstances)
        if known is not None:
            self._remember(lambda: self._known.seen(known.key, name=request.host_name,
                                                    now=self._clock()))  # fmt: skip
        if agreed is not None:
            return agreed, why
        if request.host and request.host in self._declined:
            return False, "you said no to this host"
        if about not in self._said:
            self._said[about] = await self._question(request)
            if not self._said[about]:
                self._declined.add(request.host)
        return self._said[about], "you said yes" if self._said[about] else "you said no"

    async def _question(self, request: Request) -> bool:
        assert self._ask is not None
        answer = await self._ask(request)
        if answer == "always" and request.host:
            self._remember(lambda: self._known.set(request.host, "agreed", name=request.host_name,
                                                   now=self._clock()))  # fmt: skip
        return answer != "no"

    def _remember(self, write: Callable[[], object]) -> None:
        """A disk that is full costs the memory of an answer, never the answer."""
        try:
            write()
        except CrowdgradError as error:
            logger.warning("%s", error)


def lines(request: Request, width: int = WIDTH) -> list[str]:
    """All that somebody should know before saying yes, in plain words, at `width` columns."""
    row = partial(_row, width=max(width, 2 * LABEL))
    said = textwrap.wrap(headline(request), width, break_on_hyphens=False)
    for label, text in particulars(request):
        said += row(label, text)
    return said


def headline(request: Request) -> str:
    return f"“{one_line(request.title)}” asks for the help of this machine."


def particulars(request: Request) -> list[tuple[str, str]]:
    """The same, each with what it is about; no label: it belongs to what stands before it."""
    said = [("host", f"{who(request)}, at {request.address}")]
    if not request.host:
        unproven = "It has proven no key: a name is only a word, and nothing is remembered."
        said.append(("", unproven))
    if request.servers:
        said.append(("servers", f"{SERVERS} {_named(request.servers)}."))
    said.append(("what for", one_line(request.cause) or "it does not say"))
    if description := _clipped(request.description, MAX_DESCRIPTION):
        said.append(("it says", f"“{description}”"))
    if contact := _clipped(request.contact, MAX_CONTACT):
        said.append(("contact", contact))
    said.append(("data", _data(request)))
    said.append(("memory", f"up to {size(request.memory_bytes)}"))
    said.append(("traffic", _traffic(request)))
    if exchanges := EXCHANGES[request.shares]:
        said.append(("others", exchanges))
    said.append(("disk", f"up to {size(request.disk_bytes)} for its model and training data"))
    said += [("it sees", SEES), ("never sees", NEVER_SEES), ("no code", NO_CODE)]
    if request.own_model:
        said.append(("walls", "none: your own model computes, which is your own code."))
    elif not request.walls:
        said.append(("walls", WALLED))
    else:
        missing = "; ".join(request.walls)
        said.append(("but here", f"these protections do not hold: {missing}."))
    return said


def _traffic(request: Request) -> str:
    again = ", and again what the disk may not keep of it" if request.again else ""
    return (
        f"{size(request.traffic_bytes)} once{again}, then {size(request.exchange_bytes)} "
        "back and forth for every piece of work"
    )


def who(request: Request) -> str:
    """The host, by its name and what it has proven."""
    name = one_line(request.host_name)
    if not request.host:
        return f"calls itself {name}" if name else "a host without a name"
    return f"{name} (key {request.host})" if name else f"key {request.host}"


def size(count: int) -> str:
    """Bytes for a person: rounded, never to nothing."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            number = count / least
            return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    return f"{count} bytes"


def _data(request: Request) -> str:
    """A card may be long, and what follows must stay in sight."""
    said = [f"{what} {_clipped(text, MAX_CARD)}" for what, text in cards.in_words(request.card)]
    title = f"“{_clipped(request.data, MAX_CARD)}”; " if request.data else ""
    return title + "; ".join(said) + ("; more may be added" if request.growing else "")


def _named(servers: Sequence[str]) -> str:
    """A host may name many, with long names, and what follows must stay in sight."""
    named = [_clipped(name, MAX_SERVER) for name in servers]
    more = len(named) - SERVERS_NAMED
    return one_line(", ".join(named[:SERVERS_NAMED]) + (f" and {more} more" if more > 0 else ""))


def _clipped(text: str, length: int) -> str:
    shown = one_line(text)
    return f"{shown[:length]}…" if len(shown) > length else shown


def _row(label: str, text: str, *, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=f"  {label:{LABEL - 2}}",
        subsequent_indent=" " * LABEL,
        break_on_hyphens=False,
    )


def _stranger(request: Request) -> str:
    if not request.host:
        return "the host has proven no key"
    return f"the host's key {request.host} is not on any list"


def _day(when: float) -> str:
    return f"{datetime.fromtimestamp(when):%d %B %Y}"
