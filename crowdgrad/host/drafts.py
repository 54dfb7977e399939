"""A job while somebody is still composing it: what a form holds, and the job file it becomes.

A draft is plain values. Checking one loads neither torch nor the data; `plan_of` makes it the same
job that `crowdgrad host` makes of the saved file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from crowdgrad import recipes
from crowdgrad.capture.loading import check_target
from crowdgrad.capture.ready import model_of
from crowdgrad.data import catalogue
from crowdgrad.data.progress import Progress
from crowdgrad.domain.job import MAX_TITLE, StoppingRule
from crowdgrad.errors import DataMissing, JobFileError
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.host import jobfile
from crowdgrad.host.job import JobPlan

FILE = "job.toml"
VOLUNTEER_KEYS = ("minimum", "maximum", "visibility")
Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Checked by `check`, not where it is made: a form is incomplete for most of its life."""

    data: str = ""
    """A name from the catalogue, an .npz file or a prepared folder, relative to `folder`."""
    title: str = ""
    cause: str = ""
    description: str = ""
    contact: str = ""
    model: Table | None = None
    """A ready-made model: its kind and sliders. Either this or `task`."""
    task: str | None = None
    """module:object, looked for in `folder` first."""
    folder: str = "."
    """Where paths and the task's module are looked for; not part of the file."""
    recipe: Table = field(default_factory=dict)
    stop: Table = field(default_factory=dict)
    volunteers: Table = field(default_factory=dict)
    seed: int = 0


KEYS = tuple(row.name for row in fields(Draft))
_TEXTS = ("data", "title", "cause", "description", "contact", "folder")
_TABLES = ("recipe", "stop", "volunteers")


def of_table(table: Mapping[str, object]) -> Draft:
    """A draft from what a form or a file says; only its form is checked. Raises JobFileError."""
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise JobFileError(
            f"A draft has no {', '.join(map(repr, unknown))}.",
            advice=f"It has: {', '.join(KEYS)}.",
        )
    for name in (*_TEXTS, "task"):
        value = table.get(name, "")
        if not isinstance(value, str) and not (name == "task" and value is None):
            raise JobFileError(f"{name!r} is {value!r}.", advice="Give a text.")
    for name in (*_TABLES, "model"):
        value = table.get(name, {})
        if not isinstance(value, Mapping) and not (name == "model" and value is None):
            raise JobFileError(f"{name!r} is {value!r}.", advice="Give names with values.")
    seed = table.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise JobFileError(f"'seed' is {seed!r}.", advice="Give a whole number from 0 on.")
    return Draft(**dict(table))  # type: ignore[arg-type]


def check(draft: Draft) -> None:
    """Everything that can be said without the data. Raises UserError."""
    if not draft.data.strip():
        raise JobFileError("There is no data yet.", advice="Choose a data set.")
    if not 0 < len(draft.title) <= MAX_TITLE or not draft.title.isprintable():
        raise JobFileError(
            f"The title is {draft.title[:130]!r}.",
            advice=f"Give one line of 1 to {MAX_TITLE} characters.",
        )
    if (draft.model is None) == (draft.task is None):
        raise JobFileError(
            "There is no model yet." if draft.model is None else "There is a model and a task.",
            advice="Choose a ready-made model, or name a task of your own: one of them.",
        )
    if draft.model is not None:
        model_of(draft.model, "the model")
    if draft.task is not None:
        check_target(draft.task)
    recipe = dict(draft.recipe)
    recipes.from_table(str(recipe.pop("name", recipes.DEFAULT)), recipe)
    _check_stop(draft.stop)
    _check_volunteers(draft.volunteers)
    if not 0 <= draft.seed < 1 << 63:  # what a TOML file can say
        raise JobFileError(f"The seed is {draft.seed}.", advice="Give 0 to 2^63 - 1.")


def _check_stop(stop: Table) -> None:
    known = [row.name for row in fields(StoppingRule)]
    unknown = sorted(set(stop) - set(known))
    if unknown:
        raise JobFileError(
            f"'stop' has no {', '.join(map(repr, unknown))}.", advice=f"It has: {', '.join(known)}."
        )
    try:
        StoppingRule(**{"epochs": 5, **stop})
    except (ValueError, TypeError) as error:
        raise JobFileError(f"'stop': {error}.", advice="Change that value.") from None


def _check_volunteers(volunteers: Table) -> None:
    unknown = sorted(set(volunteers) - set(VOLUNTEER_KEYS))
    if unknown:
        raise JobFileError(
            f"'volunteers' has no {', '.join(map(repr, unknown))}.",
            advice=f"It has: {', '.join(VOLUNTEER_KEYS)}; a job file can say more.",
        )
    least, most = volunteers.get("minimum", 0), volunteers.get("maximum", 1000)
    if (
        type(least) is not int
        or type(most) is not int
        or not 0 <= least <= most <= 1000
        or not most
    ):
        raise JobFileError(
            f"minimum {least!r} and maximum {most!r} volunteers do not fit.",
            advice="Give 0 ≤ minimum ≤ maximum ≤ 1000.",
        )
    if volunteers.get("visibility", "public") not in ("public", "link"):
        raise JobFileError(
            f"The visibility is {volunteers['visibility']!r}.", advice="Choose public or link."
        )


def as_job(draft: Draft) -> dict[str, object]:
    """The table of its job file: what is empty is left out."""
    names = [name for name in KEYS if name != "folder"]
    values = {name: getattr(draft, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if value is not None and (name == "model" or value not in ("", {}))
    }


def plan_of(draft: Draft, *, cache: Path, progress: Progress | None = None) -> JobPlan:
    """The job as `crowdgrad host` would make it of the file. Raises UserError, DataError."""
    check(draft)
    return jobfile.plan_of(as_job(draft), Path(draft.folder) / FILE, cache=cache, progress=progress)


def save(draft: Draft, folder: Path) -> Path:
    """Its job file in a folder. Raises UserError, DataMissing, CannotWrite, DiskFull."""
    check(draft)
    if draft.task is not None and folder.resolve() != Path(draft.folder).resolve():
        raise JobFileError(
            f"The task is looked for beside the job file, in {draft.folder}.",
            advice="Save the file there.",
        )
    file = folder / FILE
    with disk_errors(file):
        write_whole(file, to_toml(replace(draft, data=_lasting(draft))).encode())
    return file


def _lasting(draft: Draft) -> str:
    """The data as it is found from another folder, too."""
    here = Path(draft.folder) / draft.data
    if here.exists():
        return str(here.resolve())
    try:
        return catalogue.find(draft.data).name
    except DataMissing as error:
        raise DataMissing(
            f"There is no data {draft.data!r} in {draft.folder}.", advice=error.advice
        ) from None


def of_toml(text: str, folder: str = ".") -> Draft:
    """The draft that a saved file came from. Raises JobFileError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobFileError(f"This is not TOML: {error}.", advice="Mend it.") from None
    return of_table({**table, "folder": folder})


def to_toml(draft: Draft) -> str:
    """As `crowdgrad host` reads it. Raises JobFileError for what TOML cannot say."""
    table = as_job(draft)
    lines = [_line(k, v) for k, v in table.items() if not isinstance(v, Mapping)]
    for key, inner in table.items():
        if isinstance(inner, Mapping):
            lines += ["", f"[{key}]", *(_line(k, v) for k, v in inner.items() if v is not None)]
    return "\n".join(lines) + "\n"


def _line(key: str, value: object) -> str:
    return f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        inner = ", ".join(_line(str(k), v) for k, v in value.items() if v is not None)
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise JobFileError(f"A job file cannot say {value!r}.", advice="Give a number or a text.")


def _quoted(text: str) -> str:
    """A basic string: quotes, backslashes and what does not print are escaped."""
    made = []
    for character in text:
        code = ord(character)
        if 0xD800 <= code < 0xE000:
            raise JobFileError(
                f"A text has half a character, U+{code:04X}.", advice="Type that text again."
            )
        if character in '"\\':
            made.append(f"\\{character}")
        elif code < 0x20 or 0x7F <= code < 0xA0:
            made.append(f"\\u{code:04x}")
        else:
            made.append(character)
    return f'"{"".join(made)}"'
