"""`control.json`: how commands on the same machine reach a running host.

A host that dies leaves it behind, and a run folder may come from elsewhere: the token goes only to
a host that says it has this job (`crowdgrad/host/remote/runs.py`).
"""

from __future__ import annotations

from crowdgrad.net.control_file import Entrance, announce, new_token, read, withdraw

__all__ = ["NAME", "Entrance", "announce", "new_token", "read", "withdraw"]

NAME = "control.json"
