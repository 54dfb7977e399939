"""The people of the matchmaker's load: their keys, their addresses, their machines and their jobs.

Everybody has an address of their own on this machine's loopback, as people at home have. What they
are is drawn from a seed, so every run has the same crowd.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass

from _matchmaker_socket import frame, handshake

from crowdgrad.net import bodies, identity, rooms, signing
from crowdgrad.net.identity import Identity

CAUSES = ("medicine", "climate", "games", "language", "physics")
NEEDED = 8
"""How many volunteers every host asks for."""
SOFTWARE = "crowdgrad 0.1.0"
_A_NET, _A_BYTE = 250 * 250, 250


def address(number: int) -> str:
    """127.1.0.1 and on: a loopback address for each."""
    return f"127.{1 + number // _A_NET}.{number // _A_BYTE % _A_BYTE}.{1 + number % _A_BYTE}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a key, and the one thing they announce."""

    key: Identity
    public: str
    address: str
    path: str
    body: bytes
    id: str
    """The volunteer's, or the job's."""

    def handshake(self, authority: str) -> bytes:
        return handshake(authority, self.path)

    def hello(self, authority: str) -> bytes:
        """A frame, signed now."""
        time_ms, nonce = int(time.time() * 1000), os.urandom(16).hex()
        text = signing.request_text(signing.SOCKET, authority, self.path, self.body, time_ms, nonce)
        said = rooms.Hello(
            key=self.public,
            time_ms=time_ms,
            nonce=nonce,
            signature=self.key.sign_text(text).hex(),
            body=self.body.decode(),
        )
        return frame(rooms.encode(said))


class Town:
    """Where people come from."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._count = 0

    def volunteers(self, count: int) -> list[Caller]:
        """Takes 40 µs each, most of it for the key."""
        return [self._volunteer() for _ in range(count)]

    def hosts(self, count: int) -> list[Caller]:
        """Each with a job that needs exactly so many; a few of them need a GPU."""
        return [self._host(_requirements(self._dice), NEEDED) for _ in range(count)]

    def unhelped(self, count: int) -> list[Caller]:
        """Hosts whose jobs need what nobody here has: there is always something to look at."""
        needs = bodies.RequirementsBody(gpu=True, gpu_memory_mb=160_000)
        return [self._host(needs, 1) for _ in range(count)]

    def _volunteer(self) -> Caller:
        key, public, where = self._newcomer()
        machine, cores, memory_mb = _machine(self._dice)
        name = str(key.id)
        body = rooms.Register(
            volunteer=bodies.VolunteerBody(
                id=name, name=f"v-{name[:6]}", cores=cores, memory_mb=memory_mb,
                engine="onnxruntime", software=SOFTWARE,
            ),
            session=f"{self._dice.getrandbits(64):016x}",
            machine=machine,
            wants=_wants(self._dice),
        )  # fmt: skip
        path = f"/v1/volunteers/{name}/presence"
        return Caller(key, public, where, path, rooms.encode(body), name)

    def _host(self, needs: bodies.RequirementsBody, minimum: int) -> Caller:
        key, public, where = self._newcomer()
        job = f"job-{self._count}-{self._dice.getrandbits(32):08x}"
        body = rooms.Publish(
            offer=bodies.OfferBody(
                id=job, title=f"Job {self._count}", address=f"{where}:7000",
                cause=self._dice.choice(CAUSES) if self._dice.random() < 0.4 else "",
                minimum=minimum, maximum=NEEDED, requirements=needs,
                hyperparameters={"recipe": "crowd", "lr": 0.1, "batch_size": 100},
            ),
            members=(bodies.MemberBody(position=0, id=str(key.id), name="host"),),
        )  # fmt: skip
        return Caller(key, public, where, f"/v1/jobs/{job}/presence", rooms.encode(body), job)

    def _newcomer(self) -> tuple[Identity, str, str]:
        self._count += 1
        key = identity.from_seed(self._dice.randbytes(32))
        return key, key.public.hex(), address(self._count)


def _machine(dice: random.Random) -> tuple[bodies.MachineBody, int, int]:
    """The machine, its cores and its memory: one in ten has a GPU, one in ten is too small."""
    speed = {"gflops": round(dice.lognormvariate(3.0, 0.8), 1), "download_mbps": 50.0}
    kind = dice.random()
    if kind < 0.1:
        gpu = bodies.MachineBody(gpu="RTX", gpu_memory_mb=dice.choice((8000, 24_000)), **speed)
        return gpu, 8, 32_000
    if kind < 0.2:
        return bodies.MachineBody(**speed), 1, 1000
    if kind < 0.3:
        return bodies.MachineBody(kind="browser", **speed), 4, 4000
    return bodies.MachineBody(**speed), dice.choice((4, 8, 16)), dice.choice((8000, 16_000))


def _wants(dice: random.Random) -> bodies.WantsBody:
    """Most help anyone; one in five prefers a cause or two, one in twenty helps no other."""
    kind = dice.random()
    if kind >= 0.25:
        return bodies.WantsBody()
    liked = tuple(dice.sample(CAUSES, dice.choice((1, 2))))
    return bodies.WantsBody(causes=liked, only_causes=kind < 0.05)


def _requirements(dice: random.Random) -> bodies.RequirementsBody:
    kind = dice.random()
    if kind < 0.15:
        return bodies.RequirementsBody(gpu=True, gpu_memory_mb=8000, memory_mb=4000)
    if kind < 0.3:
        return bodies.RequirementsBody(cores=4, memory_mb=8000, kinds=("native",))
    return bodies.RequirementsBody(cores=2, memory_mb=2000)
