"""A stranger: announces as many hosts as it is told, once a line has come in.

python flood.py NUMBER
"""

from __future__ import annotations

import sys

from zeroconf import ServiceInfo, Zeroconf
from zeroconf._protocol.outgoing import DNSOutgoing
from zeroconf.const import _FLAGS_QR_RESPONSE

from crowdgrad.net.nearby import SERVICE, entries

if __name__ == "__main__":
    net = Zeroconf()
    sys.stdin.readline()
    for number in range(int(sys.argv[1])):
        said = entries(key=f"{number:064x}", job="job", title="Help me", cause="")
        info = ServiceInfo(
            SERVICE, f"n{number}.{SERVICE}", port=8701, properties=said,
            server=f"n{number}.local.", parsed_addresses=["10.77.0.3"],
        )  # fmt: skip
        out = DNSOutgoing(_FLAGS_QR_RESPONSE)
        for record in (info.dns_pointer(), info.dns_service(), info.dns_text()):
            out.add_answer_at_time(record, 0)
        for address in info.dns_addresses():
            out.add_answer_at_time(address, 0)
        net.send(out)
    print("said")
    sys.stdin.read()
