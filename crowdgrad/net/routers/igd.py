"""miniupnpc at work for `upnp.py`: a program of its own, within limits, that may be killed.

The library is C code that reads whatever a router answers, for as long as it answers, and anything
on a network may answer for a router. So it runs here, where it has little memory and little time:

    ["addportmapping", 8701, "TCP", …]      a line for each call, as JSON
    {"result": true} or {"error": "…"}      and one for what came of it

It ends when its input does. Nothing of crowdgrad is imported: it starts in a moment.
"""

import json
import sys

METHODS = ("discover", "selectigd", "externalipaddress", "addportmapping", "deleteportmapping")
MEMORY_BYTES = 256 << 20
CPU_S = 60
MAX_WORDS = 500


def bound() -> None:
    """As far as this system can."""
    try:
        import resource
    except ImportError:
        return
    for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_S)):
        _, hard = resource.getrlimit(limit)
        if hard == resource.RLIM_INFINITY or hard > most:
            resource.setrlimit(limit, (most, most))


def main() -> None:
    bound()
    import miniupnpc

    local, look_ms = sys.argv[1], int(sys.argv[2])
    device = miniupnpc.UPnP(multicastif=local, discoverdelay=look_ms)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        assert name in METHODS, name
        try:
            said = {"result": getattr(device, name)(*arguments)}
        except Exception as error:  # the library raises nothing else
            said = {"error": str(error)[:MAX_WORDS]}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
