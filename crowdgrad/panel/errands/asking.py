"""`python -m crowdgrad.panel.errands.asking FOLDER`: answers for a run whose host has ended.

A question a line on standard input, an answer a line on standard output (`panel/asking.py`). It
ends with its standard input.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from crowdgrad.errors import CrowdgradError
from crowdgrad.panel.problems import of_error


def main() -> int:
    # Whatever libraries print goes elsewhere: standard output is for answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asked = None
    for line in sys.stdin.buffer:
        try:
            if asked is None:
                from crowdgrad.host.keeping.recall import recall

                asked = recall(Path(sys.argv[1]))
            told = {"result": dataclasses.asdict(_answer(asked, json.loads(line)))}
        except CrowdgradError as error:
            told = {"error": dataclasses.asdict(of_error(error))}
        answers.write(json.dumps(told) + "\n")
        answers.flush()
    return 0


def _answer(asked: Any, question: dict[str, Any]) -> Any:
    if "count" in question:
        return asyncio.run(asked.samples(question["count"]))
    return asyncio.run(asked.predict(question["input"]))


if __name__ == "__main__":
    sys.exit(main())
