"""A draft, as the web app makes one, written as a job file that the command line starts as well."""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict

from crowdgrad.errors import JobFileError
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.panel.places import place_of

NAME, ENDING = "job", ".toml"
MAX_DEPTH = 8
"""Of tables in tables; a job file has three."""
KNOWN_ONLY = ConfigDict(extra="forbid")
"""A key that a table does not have is a mistake, as in a job file."""
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """When it ends, as in a job file, which checks the values."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_ONLY

    epochs: int = 5
    target: float | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Volunteers:
    """Who may help, as in a job file, which checks the values."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_ONLY

    minimum: int = 0
    maximum: int = 1000
    start: str | None = None
    visibility: str | None = None
    invited: tuple[str, ...] | None = None
    admit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is to be trained, before it is a job."""

    __pydantic_config__: ClassVar[ConfigDict] = KNOWN_ONLY

    title: str
    data: str
    """A name of the catalogue, or the path of an .npz file or a prepared folder."""
    cause: str = ""
    description: str = ""
    contact: str = ""
    model: dict[str, str | int | float] | None = None
    """A ready-made model: its kind and its sliders."""
    task: str | None = None
    """`module:object`, where it is no ready-made one."""
    folder: str = ""
    """Where the task is looked for."""
    recipe: dict[str, object] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    volunteers: Volunteers = field(default_factory=Volunteers)
    seed: int = 0


def to_toml(draft: Draft) -> str:
    """Raises JobFileError where it names no model, or two."""
    if (draft.task is None) == (draft.model is None):
        raise JobFileError(
            "A job has one model.", advice="Choose a ready-made one, or name MODULE:OBJECT."
        )
    head: dict[str, object] = {"title": draft.title or "Untitled"}
    for name in ("cause", "description", "contact", "task"):
        if getattr(draft, name):
            head[name] = getattr(draft, name)
    head |= {"data": draft.data, "seed": draft.seed}
    lines = [f"{name} = {_value(value)}" for name, value in head.items()]
    tables = {
        "model": draft.model,
        "recipe": draft.recipe,
        "stop": asdict(draft.stop),
        "volunteers": asdict(draft.volunteers),
    }
    for name, table in tables.items():
        if table:
            lines += ["", f"[{name}]"]
            lines += [f"{_key(key)} = {_value(v)}" for key, v in table.items() if v is not None]
    return "\n".join(lines) + "\n"


def save(draft: Draft, home: Path, folder: str | None = None) -> Path:
    """Where it was asked for; else beside its task, or below the home folder. A file that says
    something else stays: it is somebody's, or a host is about to read it. Raises UserError,
    CannotWrite, DiskFull."""
    text = to_toml(draft).encode()
    below = re.sub(r"\W+", "-", draft.title).strip("-").lower()[:60] or "job"
    place = place_of(folder) if folder else _beside(draft) or home / "jobs" / below
    with disk_errors(place):
        file = _unused(place.absolute(), text)
        write_whole(file, text)
    return file


def save_to_check(draft: Draft, scratch: Path) -> Path:
    """For a moment; beside its task, which is looked for there. Raises as `save` does."""
    text, place = to_toml(draft).encode(), _beside(draft) or scratch
    file = place.absolute() / f".check-{secrets.token_hex(4)}{ENDING}"
    with disk_errors(place):
        write_whole(file, text, sync=False)
    return file


def _beside(draft: Draft) -> Path | None:
    return place_of(draft.folder) if draft.task is not None and draft.folder else None


def _unused(folder: Path, text: bytes) -> Path:
    """A file that is not there yet, or says the same. Raises OSError."""
    for number in itertools.count(1):
        file = folder / f"{NAME if number == 1 else f'{NAME}-{number}'}{ENDING}"
        if not file.exists() or (file.is_file() and file.read_bytes() == text):
            return file
    raise AssertionError("numbers do not end")


def _key(name: str) -> str:
    if _KEY.fullmatch(name) is None:
        raise JobFileError(f"{name[:70]!r} is no key of a job file.", advice="Leave it out.")
    return name


def _value(value: object, depth: int = 0) -> str:
    if depth > MAX_DEPTH:
        raise JobFileError("Tables in tables in tables.", advice="No job file is that deep.")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        inner = [
            f"{_key(key)} = {_value(v, depth + 1)}" for key, v in value.items() if v is not None
        ]
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v, depth + 1) for v in value)}]"
    raise JobFileError(f"A job file cannot hold {value!r}.", advice="Leave it out.")


def _text(value: str) -> str:
    """As TOML writes it: what JSON escapes, and letters of all kinds as they are."""
    if not value.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise JobFileError("Half a character cannot be written.", advice="Type it anew.")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
