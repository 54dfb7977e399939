"""Links that can be taken down or made narrow: machines in network namespaces, at one bridge.

A port of the bridge that is down swallows what is sent, and nobody hears of it: both ends still
believe in their connection, as when a cable is pulled or a laptop leaves the house. A link that is
narrow lets so many bits a second through, each way (`tbf`). Needs root and `ip` and `tc` of
iproute2; where these are missing it says so and the benchmark ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

MOST = 60_000
"""Addresses that one bridge has."""
BRIDGE = "02:63:67:00:00:01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One volunteer's."""

    namespace: str
    port: str
    """The bridge's end of it."""
    far: str
    """The other end."""
    address: str
    """Of whoever is there."""

    @property
    def before(self) -> list[str]:
        """What to put before a command to run it at this link's far end."""
        return ["ip", "netns", "exec", self.namespace]


class Links:
    """As a context manager: all of it is gone afterwards."""

    def __init__(self) -> None:
        mark = os.getpid()
        self._mark = f"cg{mark % 1_000_000}"
        self._net = f"10.{128 + mark % 64}"
        self._links: dict[str, Link] = {}
        self._made = 0

    @property
    def host(self) -> str:
        """The address of this machine as seen from all links."""
        return f"{self._net}.0.1"

    def __enter__(self) -> Links:
        if shutil.which("ip") is None:
            raise SystemExit(_NEEDED + "there is no command `ip` here.")
        # With an address of its own: else it has a port's, and another whenever ports come and go.
        self._ip("link", "add", self._mark, "address", BRIDGE, "type", "bridge")
        try:
            self._ip("addr", "add", f"{self.host}/16", "dev", self._mark)
            self._ip("link", "set", self._mark, "up")
            self.remove(self.add())  # better now than in the middle
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for link in list(self._links.values()):
            self.remove(link)
        subprocess.run(["ip", "link", "del", self._mark], check=False, capture_output=True)

    def add(self) -> Link:
        self._made += 1
        assert self._made < MOST
        number = self._made + 1
        far = f"{self._mark}f{number}"
        link = Link(
            namespace=f"{self._mark}-{number}",
            port=f"{self._mark}n{number}",
            far=far,
            address=f"{self._net}.{number // 256}.{number % 256}",
        )
        self._ip("netns", "add", link.namespace)
        self._links[link.namespace] = link
        self._ip("link", "add", link.port, "type", "veth", "peer", "name", far)
        self._ip("link", "set", link.port, "master", self._mark, "up")
        self._ip("link", "set", far, "netns", link.namespace)
        self._ip("-n", link.namespace, "addr", "add", f"{link.address}/16", "dev", far)
        for device in ("lo", far):
            self._ip("-n", link.namespace, "link", "set", device, "up")
        return link

    def narrow(self, link: Link, mbit: float) -> None:
        """Let so much through, each way; what comes faster waits up to 100 ms."""
        rule = ["root", "tbf", "rate", f"{mbit:g}mbit", "burst", "32kb", "latency", "100ms"]
        self._run("tc", "qdisc", "add", "dev", link.port, *rule)
        self._run("tc", "-n", link.namespace, "qdisc", "add", "dev", link.far, *rule)

    def down(self, link: Link) -> None:
        self._ip("link", "set", link.port, "down")

    def remove(self, link: Link) -> None:
        """After whoever ran there has ended."""
        del self._links[link.namespace]
        for command in (["link", "del", link.port], ["netns", "del", link.namespace]):
            subprocess.run(["ip", *command], check=False, capture_output=True)

    def _ip(self, *words: str) -> None:
        self._run("ip", *words)

    def _run(self, *words: str) -> None:
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{_NEEDED}`{' '.join(words)}` says: {done.stderr.strip()}")


_NEEDED = (
    "Links of their own are a part of this benchmark. It needs network namespaces, that is root "
    "and iproute2, on Linux; nothing was measured: "
)
