"""What a run with parameter servers is made of: whose they are, what each holds, how it is told.

Servers are processes of this host on its own machine, or somebody keeps them running elsewhere; not
both. The parts are cut here, so a run may go on with another number of servers, or with none.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from crowdgrad import __version__
from crowdgrad.domain.job import MAX_SERVERS, Job, ServerPlace
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Version, VolunteerId
from crowdgrad.errors import SettingError
from crowdgrad.host.servers import proofs
from crowdgrad.host.servers.copies import CopiedParameters
from crowdgrad.host.servers.cut import Part, cut, whole
from crowdgrad.host.servers.fleet import Connect, Elsewhere, Fleet, OurOwn, Post
from crowdgrad.host.servers.parameters import PartedParameters
from crowdgrad.net.messages import Equip
from crowdgrad.net.ports import bind
from crowdgrad.numerics.rules import Rule
from crowdgrad.numerics.vectors import Vector
from crowdgrad.recipes.base import Recipe, local_rule

Holds = Literal["parts", "copies"]
SOFTWARE = f"crowdgrad {__version__}"
THE_HOSTS = "0.0.0.0"  # noqa: S104
"""As a server's address: the machine on which the host was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which servers a host is to use."""

    own: int = 0
    """So many on this machine."""
    elsewhere: tuple[str, ...] = ()
    """Addresses, host:port, of others."""
    hold: Holds = "parts"
    average_every: int = 100
    """Copies: updates from one averaging to the next."""
    secret: bytes = field(default=b"", repr=False)
    """Shared with those elsewhere."""

    def __post_init__(self) -> None:
        if self.own and self.elsewhere:
            raise SettingError(
                "Servers on this machine and elsewhere at once are not possible.",
                advice="Give --servers N, or --server for each of those elsewhere.",
            )
        if not 0 <= self.count <= MAX_SERVERS:
            raise SettingError(f"{self.count} servers.", advice=f"At most {MAX_SERVERS} work.")
        if self.elsewhere and not self.secret:
            raise SettingError(
                "Servers elsewhere must know that it is we who tell them what to do.",
                advice="Give the same --secret-file to the host and to every server.",
            )
        if self.average_every < 1:
            raise SettingError(f"--average-every {self.average_every}.", advice="Give 1 or more.")
        for address in self.elsewhere:
            _check_address(address)

    @property
    def count(self) -> int:
        return self.own or len(self.elsewhere)


NO_SERVERS = Wanted()


def _check_address(address: str) -> None:
    try:
        ServerPlace(address=address, token="", start=0, stop=1, update_stop=1)
    except ValueError as error:
        raise SettingError(f"--server: {error}.", advice="Give HOST:PORT.") from None


class Hired:
    """The servers of one run."""

    def __init__(
        self, wanted: Wanted, job: Job, spec: ProgramSpec, recipe: Recipe, *, host: str
    ) -> None:
        """`host`: where this host listens, and so do servers of its own."""
        self._wanted = wanted
        self._job = job
        self._spec = spec
        self._serving = recipe.serving()
        self._rule: Rule = recipe.server_rule()
        self._secret = wanted.secret or secrets.token_hex(32).encode()
        self._host = host
        self._ports = _free_ports(host, wanted.own)
        if wanted.hold == "copies" and self._serving.barrier is not None:
            raise SettingError(
                f"Recipe {recipe.name} goes in rounds, and copies on servers know of none.",
                advice="Let servers hold parts, or choose another recipe.",
            )
        self._parts = self._cut()
        self._parameters: PartedParameters | None = None

    def _cut(self) -> tuple[Part, ...]:
        if self._wanted.hold == "copies":
            return (whole(self._spec),) * self._wanted.count
        return cut(self._spec, self._wanted.count)

    def hold(self, initial: Vector, rule: Rule, version: Version) -> PartedParameters:
        """The parameters, for a training to begin with."""
        if self._wanted.hold == "copies":
            self._parameters = CopiedParameters(
                initial,
                rule,
                version,
                self._spec,
                self._wanted.count,
                average_every=self._wanted.average_every,
            )
        else:
            self._parameters = PartedParameters(
                initial,
                rule,
                version,
                self._spec,
                self._parts,
                publish_every=self._serving.publish_every,
            )
        return self._parameters

    @property
    def parameters(self) -> PartedParameters:
        assert self._parameters is not None, "nobody has asked for them yet"
        return self._parameters

    def places(self, who: VolunteerId) -> tuple[ServerPlace, ...]:
        """Where a volunteer finds which part."""
        admission = self.parameters.admission_of(who)
        token = proofs.token(self._secret, self._job.id, who, admission)
        return tuple(
            ServerPlace(
                address=self._address(server),
                token=token,
                admission=admission,
                start=self._parts[server].start,
                stop=self._parts[server].stop,
                update_stop=self._parts[server].update_stop,
                key=proofs.key_of(self._secret).id,
            )
            for server in self.parameters.servers_of(who)
        )

    def _address(self, server: int) -> str:
        if self._ports:
            return f"{THE_HOSTS}:{self._ports[server]}"
        return self._wanted.elsewhere[server]

    def fleet(
        self,
        *,
        lost: Callable[[str], Awaitable[None]],
        broken: Callable[[str], None],
        connect: Connect,
        random01: Callable[[], float],
        heartbeat_s: float,
        silence_s: float,
        logs: Path,
    ) -> Fleet:
        return Fleet(
            self._posts(logs),
            self.parameters.crew,
            [self._equip(part, heartbeat_s, silence_s) for part in self._parts],
            job=self._job.id,
            secret=self._secret,
            vectors=len(self._rule.vectors),
            software=SOFTWARE,
            staged=self.parameters.staged,
            admission=lambda: self.parameters.next_admission,
            lost=lost,
            broken=broken,
            connect=connect,
            random01=random01,
        )

    def _posts(self, logs: Path) -> Sequence[Post]:
        if not self._ports:
            return [Elsewhere(address) for address in self._wanted.elsewhere]
        return [
            OurOwn(
                self._host,
                port,
                secret=self._secret.decode(),
                log=logs / f"server-{number}.log",
            )
            for number, port in enumerate(self._ports, start=1)
        ]

    def _equip(self, part: Part, heartbeat_s: float, silence_s: float) -> Equip:
        serving = self._serving
        return Equip(
            spec=part.spec,
            local=self._job.local,
            rule=local_rule(self._rule),
            heartbeat_s=heartbeat_s,
            silence_s=silence_s,
            patience=serving.patience,
            decay=serving.decay,
            publish_every=serving.publish_every,
            half_backups=serving.half_backups,
            whole=self._wanted.hold == "copies",
        )


def _free_ports(host: str, count: int) -> list[int]:
    """Different ones, free now: servers of ours take them in a moment, and again after a crash."""
    with ExitStack() as held:
        listening = [held.enter_context(bind(host, 0)) for _ in range(count)]
        return [int(taken.getsockname()[1]) for taken in listening]
