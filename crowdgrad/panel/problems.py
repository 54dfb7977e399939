"""What went wrong, as the web app shows it: a code, what happened, what to do next."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from crowdgrad.errors import BadRecords, CrowdgradError

_LINE = re.compile(r"(?:crowdgrad: )?\[(CG\d{3})\] (.*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z]")
MAX_WORDS = 2000
AT_A_TERMINAL = (
    "Options are for `crowdgrad data`, at a terminal; the path of a folder that it makes can be "
    "given here."
)
SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """One record that cannot be used."""

    file: str
    line: int
    kind: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    code: str
    """Of `docs/errors.md`; empty where a process ended without one."""
    message: str
    advice: str = ""
    bad: tuple[BadRecord, ...] = ()
    """The first records of a source that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is answered in place of what was asked for."""

    detail: str
    """In words, as other APIs of ours say it."""
    error: Problem


def of_error(error: CrowdgradError) -> Problem:
    bad: tuple[BadRecord, ...] = ()

    if isinstance(error, BadRecords):
        bad = tuple(
            BadRecord(file=file, line=line, kind=kind, words=words)
            for file, line, kind, words in error.shown[:SHOWN]
        )
    return Problem(code=error.code, message=error.message, advice=error.advice, bad=bad)


def of_preparing(error: CrowdgradError) -> Problem:
    """Advice that names an option is for a terminal: the page has none to offer."""
    found = of_error(error)
    if not _OPTION.search(found.advice):
        return found
    return replace(found, advice=f"{found.advice} {AT_A_TERMINAL}")


def of_mistake(error: Exception) -> Problem:
    """Ours to mend; whoever waits must not wait for ever."""
    return of_error(
        CrowdgradError(
            f"crowdgrad made a mistake: {type(error).__name__}.",
            advice="Try again; the terminal it runs in says more.",
        )
    )


def of_output(text: str, otherwise: str) -> Problem:
    """What a command of ours said last, as its exit was no success."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    for line in reversed(lines):
        found = _LINE.match(line)
        if found is not None:
            return Problem(code=found[1], message=found[2][:MAX_WORDS])
    last = lines[-1][:MAX_WORDS] if lines else ""
    return Problem(code="", message=f"{otherwise} {last}".strip())
