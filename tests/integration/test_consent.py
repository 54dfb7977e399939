"""Nobody's machine computes for a host its owner has not agreed to help: real processes, a real
terminal, and somebody who takes their time to answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from crowdgrad.domain.job import StoppingRule
from crowdgrad.host.job import Prepared
from crowdgrad.process import Child
from crowdgrad.settings import Settings
from crowdgrad.volunteer.hosts import KnownHosts
from crowdgrad.volunteer.journal import Reader
from tests.cli.terminal import Terminal
from tests.integration.conftest import Stage, job_with

HEARD = ("joined", "back after a silence")


def at_a_terminal(stage: Stage, home: Path) -> Terminal:
    assert stage.here is not None
    words = ["-m", "crowdgrad", "work", stage.here.address, "--name", "ada", "--home", str(home)]
    return Terminal(words, stage.folder)


async def asked(person: Terminal) -> str:
    return await asyncio.to_thread(person.until, r"Help this host\?.*: ")


async def ended(person: Terminal) -> int:
    return await asyncio.to_thread(person.end)


def test_nothing_is_computed_before_somebody_agrees(
    digits: Prepared, settings: Settings, tmp_path: Path
) -> None:
    endless = job_with(digits, stop=StoppingRule(epochs=100_000), cause="a better world")
    quick = replace(settings, heartbeat_s=0.2, silence_s=2.5, name="the lab")
    home = tmp_path / "ada"

    async def main() -> None:
        async with Stage(endless, quick, tmp_path) as stage:
            with at_a_terminal(stage, home) as person:
                shown = await asked(person)
                key = stage.run._key.id
                for words in (f"the lab (key {key})", "a better world", "MB", "it sees"):
                    assert words in shown
                # A busy machine may have been silent before it asked; while it asks it is not.
                await stage.until("ada is heard", lambda: stage.member("ada") in HEARD)
                before = stage.member("ada")
                await asyncio.sleep(3.0)  # longer than the host takes silence for
                assert (stage.member("ada"), stage.units_of("ada")) == (before, 0)
                person.type("n\n")
                assert await ended(person) == 1
                assert "[CG106]" in person.shown
            with at_a_terminal(stage, home) as person:
                await asked(person)
                person.type("\x03")
                assert await ended(person) == 0
                assert "Traceback" not in person.shown
            assert stage.units_of("ada") == 0
            assert KnownHosts(home).all() == []
            with at_a_terminal(stage, home) as person:
                await asked(person)
                person.type("a\n")
                await stage.until("ada computes", lambda: stage.units_of("ada") > 0)
                person.type("\x03")
                assert await ended(person) == 0
            before = stage.units_of("ada")
            assert await alone(stage, home, lambda: stage.units_of("ada") > before) == ""
            assert "[CG106]" in await alone(stage, tmp_path / "other", lambda: False)

    asyncio.run(main())
    noted = (entry for entry in Reader(home).all() if entry.what == "note")
    notes = [entry for entry in noted if "to help “digits”" in entry.words]
    assert [note.words.split()[0] for note in notes] == ["Not", "Agreed", "Agreed"]
    assert {note.host for note in notes} == {known.key for known in KnownHosts(home).all()}


async def alone(stage: Stage, home: Path, enough: object) -> str:
    """A volunteer nobody watches: what it said when it ended by itself, or "" once it computes."""
    assert stage.here is not None
    assert callable(enough)
    child = Child(
        ["work", stage.here.address, "--plain", "--name", "ada", "--home", str(home)],
        log=stage.folder / f"{home.name}.log",
    )
    stage.children.append(child)
    await stage.until("it computes or ends", lambda: enough() or child.code is not None)
    return "" if child.code is None else child.last_words()
