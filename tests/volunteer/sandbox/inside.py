"""One forbidden thing, tried behind walls of the test's choice.

    python -P inside.py WALLS NAME TARGETS

WALLS: `none`, `entered` (not sealed yet), or `without:CALL,…`: the kernel refuses these calls while
the walls go up. NAME is an attempt, or `account`, which prints what is said to stand.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import asdict

from crowdgrad.volunteer.sandbox import enter, limits
from crowdgrad.volunteer.sandbox.attempts import ATTEMPTS, DONE, REFUSED, ROOM_BYTES, Targets
from crowdgrad.volunteer.sandbox.kernel import Linux


class Refusing(Linux):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self._refused = calls

    def call(self, name, *arguments):
        if name in self._refused:
            raise OSError(errno.EPERM, "no, said the test", name)
        return super().call(name, *arguments)


def main() -> None:
    walls, name, targets = sys.argv[1:]
    kernel = Refusing(walls.removeprefix("without:").split(","))
    if walls != "none":
        enter.enter(kernel=kernel)
        enter.limit_memory(limits.memory_in_use() + ROOM_BYTES)
    if walls not in ("none", "entered"):
        held = enter.seal(kernel=kernel)
        if name == "account":
            print(json.dumps([asdict(one) for one in held]))
            return
    try:
        ATTEMPTS[name].act(Targets(**json.loads(targets)))
    except (OSError, MemoryError, ValueError) as error:
        print(error, flush=True)
        os._exit(REFUSED)
    os._exit(DONE)


main()
