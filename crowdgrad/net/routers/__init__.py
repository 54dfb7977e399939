"""Ask the router at home for a port: by PCP, NAT-PMP or UPnP, whichever it speaks.

`open_port` asks once, `PortKeeper` keeps what it got for as long as it is needed.
"""

from crowdgrad.net.routers.gateway import WayOut, way_out
from crowdgrad.net.routers.keeper import PortKeeper
from crowdgrad.net.routers.opening import Mapping, open_port

__all__ = ["Mapping", "PortKeeper", "WayOut", "open_port", "way_out"]
