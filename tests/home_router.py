"""A home for tests: a machine behind a real router (miniupnpd), and somebody outside.

    host 192.168.77.2 ── 192.168.77.1 router 11.0.0.1 ── 11.0.0.2 outside

The addresses outside look like the internet's, since miniupnpd opens no port for one that does not;
nothing of it leaves the namespaces. Marked with `needs_router`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass

from tests.namespaces import Machine, Net, Trouble, needs

INSIDE, OUTSIDE, FAR = "192.168.77.1", "11.0.0.1", "11.0.0.2"
START_S = 20.0

needs_router = needs("miniupnpd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    host: Machine
    router: Machine
    outside: Machine
    address: str
    """The router's, outside."""


@contextlib.contextmanager
def home(
    net: Net, *, address: str = OUTSIDE, upnp: bool = True, nat_pmp: bool = True
) -> Generator[Home, None, None]:
    """`upnp`, `nat_pmp` (and PCP): what the router speaks."""
    host = net.add("host", "192.168.77.2", gateway=INSIDE)
    router = net.add("router", INSIDE)
    outside = net.add("outside", FAR, link="wan")
    router.join("wan", address)
    router.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
    router.run(["nft", _RULES])
    settings, log = net.folder / "miniupnpd.conf", net.folder / "miniupnpd.log"
    settings.write_text(
        _SETTINGS.format(
            upnp="yes" if upnp else "no",
            nat_pmp="yes" if nat_pmp else "no",
        )
    )
    pid = str(net.folder / "miniupnpd.pid")
    daemon = router.popen(["miniupnpd", "-d", "-f", str(settings), "-P", pid], log=log)
    waited_for = "Listening for NAT-PMP" if nat_pmp else "HTTP listening"
    end = time.monotonic() + START_S
    while waited_for not in log.read_text():
        if daemon.poll() is not None or time.monotonic() > end:
            raise Trouble(f"miniupnpd: {log.read_text()}")
        time.sleep(0.02)
    yield Home(host=host, router=router, outside=outside, address=address)


_RULES = """
table inet miniupnpd {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname "eth0" accept
        jump opened
    }
    chain opened { }
    chain prerouting {
        type nat hook prerouting priority -100; policy accept;
        jump turned_in
    }
    chain turned_in { }
    chain postrouting {
        type nat hook postrouting priority 100; policy accept;
        jump turned_out
        oifname "eth1" masquerade
    }
    chain turned_out { }
}
"""
_SETTINGS = """
ext_ifname=eth1
listening_ip=eth0
port=5000
enable_upnp={upnp}
enable_natpmp={nat_pmp}
secure_mode=yes
notify_interval=60
uuid=00000000-0000-0000-0000-000000000001
upnp_table_name=miniupnpd
upnp_nat_table_name=miniupnpd
upnp_forward_chain=opened
upnp_nat_chain=turned_in
upnp_nat_postrouting_chain=turned_out
allow 1024-65535 192.168.77.0/24 1024-65535
deny 0-65535 0.0.0.0/0 0-65535
"""
