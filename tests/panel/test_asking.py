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


SLOW = """
import os, sys, time
for line in sys.stdin:
    while not os.path.exists(GO):
        time.sleep(0.02)
    print('{"result": 1}', flush=True)
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


def test_who_asks_one_model_waits_for_no_other(tmp_path, monkeypatch):
    """Neither is one that is asked ended: its next question would begin a process nobody knows."""
    begun: dict[str, int] = {}
    both = asyncio.Event()

    async def scripted(arguments: Sequence[str]) -> asyncio.subprocess.Process:
        name = Path(arguments[-1]).name
        begun[name] = begun.get(name, 0) + 1
        if len(begun) == 2:
            both.set()
        pipe = asyncio.subprocess.PIPE
        script = SLOW if name.startswith("slow") else ANSWERS
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdin=pipe, stdout=pipe, stderr=pipe
        )

    monkeypatch.setattr(asking, "begin", scripted)
    monkeypatch.setattr(asking, "MOST_BUSY", 2)

    async def scenario() -> None:
        askers = asking.Askers()
        slow = [
            asyncio.create_task(askers.ask(tmp_path / name, {"question": n}))
            for name in ("slow 1", "slow 2")
            for n in range(2)
        ]
        await asyncio.wait_for(both.wait(), 30)
        with pytest.raises(Failed, match="other models"):
            await askers.ask(tmp_path / "third", {})
        monkeypatch.setattr(asking, "MOST_BUSY", 3)
        await askers.ask(tmp_path / "third", {})
        await askers.ask(tmp_path / "fourth", {})
        assert not any(task.done() for task in slow)
        (tmp_path / "go").touch()
        await asyncio.gather(*slow)
        assert begun["slow 1"] == begun["slow 2"] == 1
        assert len(askers._all) == asking.AT_ONCE
        await askers.end()

    script = SLOW.replace("GO", repr(str(tmp_path / "go")))
    monkeypatch.setattr(sys.modules[__name__], "SLOW", script)
    asyncio.run(scenario())


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


def test_at_the_end_nobody_waits_for_an_answer(tmp_path, monkeypatch):
    """Neither who was asked, nor who would be asked next, nor who asks from now on."""
    begun: list[asyncio.subprocess.Process] = []

    async def noted(arguments: Sequence[str]) -> asyncio.subprocess.Process:
        begun.append(await begin(arguments))
        return begun[-1]

    monkeypatch.setattr(asking, "begin", noted)
    monkeypatch.setattr(asking, "PATIENCE_S", 3600.0)
    never = "import time\ntime.sleep(3600)"
    monkeypatch.setattr(sys.modules[__name__], "ANSWERS", never)

    async def scenario() -> list[BaseException]:
        askers = asking.Askers()
        waiting = [asyncio.create_task(askers.ask(tmp_path, {})) for _ in range(2)]
        while not begun:  # noqa: ASYNC110 (seen by a test only)
            await asyncio.sleep(0.01)
        await askers.end()
        waiting.append(asyncio.create_task(askers.ask(tmp_path, {})))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(answer) for answer in asyncio.run(scenario())] == [Failed] * 3
    assert [process.returncode for process in begun] == [-9]
