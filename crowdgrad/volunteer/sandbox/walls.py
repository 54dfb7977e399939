"""What is promised, in one table a person can read, and what has to hold for each promise.

A wall is a promise; a step is one thing the kernel did for us. A wall holds when every step of one
of its `needs` went well; the steps that only help make it thicker and are named beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One protection asked of the system: whether it is in force, and why not."""

    name: str
    ok: bool
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    id: str
    promise: str
    needs: tuple[tuple[str, ...], ...]
    """Alternatives: the steps that together keep the promise."""
    helps: tuple[str, ...] = ()
    essential: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    wall: str
    holds: bool
    how: str
    """What holds it here, or why it does not."""


WALLS = (
    Wall(
        id="network",
        promise="It reaches no network and no other program's socket.",
        needs=(("seccomp",),),
        helps=("namespaces", "landlock"),
        essential=True,
    ),
    Wall(
        id="reading",
        promise="It reads no file; until a job's model reaches it, only its own libraries.",
        needs=(("seal",), ("landlock",)),
        essential=True,
    ),
    Wall(
        id="writing",
        promise="It writes, makes, changes and deletes no file.",
        needs=(("seccomp",),),
        helps=("landlock", "limits"),
        essential=True,
    ),
    Wall(
        id="programs",
        promise="It starts no program.",
        needs=(("seccomp",),),
        helps=("landlock",),
        essential=True,
    ),
    Wall(
        id="processes",
        promise="It starts no process.",
        needs=(("seccomp",),),
        essential=True,
    ),
    Wall(
        id="others",
        promise="It neither sees into, nor signals, nor changes any other process.",
        needs=(("seccomp",),),
        helps=("landlock", "namespaces"),
        essential=True,
    ),
    Wall(
        id="kernel",
        promise="It asks the kernel only for what arithmetic needs: no devices, no tracing.",
        needs=(("seccomp", "seal"),),
        helps=("namespaces",),
    ),
    Wall(
        id="rights",
        promise="It has no special rights and can gain none.",
        needs=(("no new privileges", "no capabilities"),),
    ),
    Wall(
        id="memory",
        promise="It takes no more memory than its job may, and goes first if there is none left.",
        needs=(("memory limit",),),
        helps=("first to go",),
    ),
    Wall(
        id="priority",
        promise="Whatever else runs on this machine comes first: processor and disk.",
        needs=(("low priority", "idle disk"),),
    ),
    Wall(
        id="traces",
        promise="It leaves no core file, keeps few files open and locks no memory.",
        needs=(("limits",),),
    ),
    Wall(
        id="ending",
        promise="It ends at once when the agent that started it does.",
        needs=(("ends with its agent",),),
    ),
)


def held(steps: Iterable[Step]) -> tuple[Held, ...]:
    """Every wall of the table, by what went well. A step that was not taken does not hold."""
    taken = {step.name: step for step in steps}
    return tuple(_held(wall, taken) for wall in WALLS)


def _held(wall: Wall, taken: Mapping[str, Step]) -> Held:
    named = list(dict.fromkeys([*(name for names in wall.needs for name in names), *wall.helps]))
    good = [taken[name] for name in named if name in taken and taken[name].ok]
    ok = {step.name for step in good}
    if any(ok.issuperset(names) for names in wall.needs):
        without = [_why(name, taken) for name in named if name in taken and name not in ok]
        how = " + ".join(_words(step) for step in good)
        return Held(wall=wall.id, holds=True, how="; without ".join([how, *without]))
    why = "; ".join(_why(name, taken) for names in wall.needs for name in names if name not in ok)
    partly = f" (only partly: {', '.join(step.name for step in good)})" if good else ""
    return Held(wall=wall.id, holds=False, how=why + partly)


def _words(step: Step) -> str:
    return f"{step.name} ({step.note})" if step.note else step.name


def _why(name: str, taken: Mapping[str, Step]) -> str:
    return f"{name}: {taken[name].note if name in taken else 'not yet'}"
