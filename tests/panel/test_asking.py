"""Models of runs without a host: one process a run, as long as what it has read is the last."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crowdgrad.panel import asking
from crowdgrad.panel.tasks import Failed

ANSWERS = """
import os, sys
for line in sys.stdin:
    print('{"result": %d}' % os.getpid(), flush=True)
"""


async def begin(_: Sequence[str]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", ANSWERS, stdin=pipe, stdout=pipe, stderr=pipe
    )


def test_a_run_that_went_on_is_asked_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "begin", begin)
    kept: Path = tmp_path / "resume" / "checkpoints"
    kept.mkdir(parents=True)

    async def scenario() -> list[int]:
        askers = asking.Askers()
        told = [await askers.ask(tmp_path, {}) for _ in range(2)]
        os.utime(kept, (1, 1))
        told.append(await askers.ask(tmp_path, {}))
        await askers.end()
        return told

    first, second, third = asyncio.run(scenario())
    assert first == second != third


@pytest.mark.parametrize("answers", ["", "print('{torn', flush=True)"])
def test_who_gets_no_answer_is_told_what_to_do(tmp_path, monkeypatch, answers):
    monkeypatch.setattr(asking, "begin", begin)
    monkeypatch.setattr(asking, "PATIENCE_S", 1.0)
    monkeypatch.setattr(
        sys.modules[__name__], "ANSWERS", f"import sys\n{answers}\nsys.stdin.read()"
    )

    async def scenario() -> None:
        await asking.Askers().ask(tmp_path, {})

    with pytest.raises(Failed, match="does not answer") as found:
        asyncio.run(scenario())
    assert found.value.problem.advice
