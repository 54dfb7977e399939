"""Links that can be taken down: every volunteer in a network namespace of its own, at one bridge.

A port of the bridge that is down swallows what is sent, and nobody hears of it: both ends still
believe in their connection, as when a cable is pulled or a laptop leaves the house. Needs root and
`ip` of iproute2; where these are missing it says so and the benchmark ends.
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
        link = Link(namespace=f"{self._mark}-{number}", port=f"{self._mark}n{number}")
        self._ip("netns", "add", link.namespace)
        self._links[link.namespace] = link
        self._ip("link", "add", link.port, "type", "veth", "peer", "name", far)
        self._ip("link", "set", link.port, "master", self._mark, "up")
        self._ip("link", "set", far, "netns", link.namespace)
        where = f"{self._net}.{number // 256}.{number % 256}/16"
        self._ip("-n", link.namespace, "addr", "add", where, "dev", far)
        for device in ("lo", far):
            self._ip("-n", link.namespace, "link", "set", device, "up")
        return link

    def down(self, link: Link) -> None:
        self._ip("link", "set", link.port, "down")

    def remove(self, link: Link) -> None:
        """After whoever ran there has ended."""
        del self._links[link.namespace]
        for command in (["link", "del", link.port], ["netns", "del", link.namespace]):
            subprocess.run(["ip", *command], check=False, capture_output=True)

    def _ip(self, *words: str) -> None:
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{_NEEDED}`ip {' '.join(words)}` says: {done.stderr.strip()}")


_NEEDED = (
    "A link that goes down is a third of this benchmark. It needs network namespaces, that is root "
    "and `ip` of iproute2, on Linux; nothing was measured: "
)
