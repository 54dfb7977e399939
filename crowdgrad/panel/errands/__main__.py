"""`python -m crowdgrad.panel.errands NAME`: one errand of the panel's; see `panel/tasks.py`."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

from crowdgrad.errors import CrowdgradError, missing_module
from crowdgrad.panel.problems import of_error, of_preparing
from crowdgrad.panel.results import DataFound
from crowdgrad.process import interrupt_on_sigterm, tie_to_stdin


def main() -> int:
    wish = json.loads(sys.stdin.buffer.readline())
    interrupt_on_sigterm()
    tie_to_stdin()
    # Whatever libraries print goes elsewhere: standard output is for what is told here.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**what: object) -> None:
        told.write(json.dumps(what) + "\n")
        told.flush()

    try:
        tell(result=dataclasses.asdict(_run(sys.argv[1], wish, tell)))
    except CrowdgradError as error:
        tell(error=dataclasses.asdict(of_preparing(error)))
    except ModuleNotFoundError as error:
        missing = missing_module(error)
        if missing is None:
            raise
        tell(error=dataclasses.asdict(of_error(missing)))
    except KeyboardInterrupt:
        return 130
    return 0


def _run(name: str, wish: dict[str, Any], tell: Any) -> DataFound:
    if name == "data":
        from crowdgrad.panel.errands import data

        return data.run(wish, tell)
    raise AssertionError(f"there is no errand {name}")


if __name__ == "__main__":
    sys.exit(main())
