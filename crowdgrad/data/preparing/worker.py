"""`python -m crowdgrad.data.preparing.worker WORK OUT`: takes steps until its input ends."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from crowdgrad.data.preparing.pool import work_for


def main() -> None:
    say = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        work_for(sys.stdin.buffer, say, Path(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # a pipe whose other end is gone would complain once more


main()
