"""A job as a TOML file: every key known, every value checked, each mistake named.

title = "Handwritten digits"
cause = "education"
description = "A small network learns to read digits, as in the paper."
contact = "digits@example.org"
task = "model:task"             # module:object, looked for beside this file first
data = "mnist"                  # a name from the catalogue, an .npz file, a prepared folder
validation = 5000
seed = 0
weights = "trained.safetensors" # what to start from, if not the model's own weights

[model]                         # instead of a task: a ready-made one that fits itself to the data
kind = "cnn"                    # mlp, cnn, rnn, gpt
blocks = 2
channels = 16

[recipe]                        # crowdgrad recipes lists them
name = "downpour"
lr = 0.05
push_every = 4
rule = "adagrad"
schedule = {shape = "cosine", warmup_epochs = 1}

[stop]
epochs = 10
target = 0.98
minutes = 5

[volunteers]
minimum = 2
maximum = 50
start = "all"
visibility = "group"            # public, link (who has its code), group (who is invited)
invited = ["0123456789abcdef"]
admit = "introduced"            # or anyone who knows the address

[spread]                        # how the data reaches them
plan = "swarm"                  # or the paper's tree: tree, pipelined
share = "full"                  # what each gets: needed, segments, full
mirrors = ["https://data.example.org/digits"]

[requirements]                  # of every volunteer
cores = 2
memory_mb = 4000
gpu = false
gpu_memory_mb = 0
gflops = 10
download_mbps = 5
engines = ["onnxruntime"]
kinds = ["native"]
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad import recipes
from crowdgrad.capture import ready
from crowdgrad.capture.collecting import uncollected
from crowdgrad.capture.loading import load_object
from crowdgrad.data import catalogue
from crowdgrad.data.dataset import DataSet
from crowdgrad.data.folder import DataFolder, is_folder, open_folder
from crowdgrad.data.formats.npz import read_npz
from crowdgrad.data.progress import Progress
from crowdgrad.domain.job import MAX_CORES, StoppingRule
from crowdgrad.domain.matching import Requirements
from crowdgrad.domain.spreading import PLANS, SHARES, Spreading
from crowdgrad.errors import DataMissing, JobFileError
from crowdgrad.host.job import JobPlan
from crowdgrad.host.knowing import told_of
from crowdgrad.replication.mirrors import check_address

if TYPE_CHECKING:
    from crowdgrad.capture.task import Task

KEYS = ("title", "cause", "description", "contact", "task", "data", "validation", "seed", "weights",
        "model", "recipe", "stop", "volunteers", "spread", "requirements")  # fmt: skip
VOLUNTEER_KEYS = ("minimum", "maximum", "start", "visibility", "invited", "admit")
SPREAD_KEYS = tuple(row.name for row in fields(Spreading))
REQUIREMENT_KEYS = tuple(row.name for row in fields(Requirements) if row.name != "data_mb")
"""All but what the host knows itself: how much data there is."""
Table = Mapping[str, object]


def read(file: Path, *, cache: Path, progress: Progress | None = None) -> JobPlan:
    """Raises JobFileError, RecipeError, TaskError, TargetError or DataError."""
    return plan_of(parse(file), file, cache=cache, progress=progress)


def plan_of(table: Table, file: Path, *, cache: Path, progress: Progress | None = None) -> JobPlan:
    """The job that a table describes; `file` is where it stands, or would. Raises as `read`."""
    _known(table, KEYS, str(file))
    if "data" not in table:
        raise JobFileError(f"{file} has no 'data'.", advice="Add a line data = …")
    model = _model(table, file)
    recipe = dict(_table(table, "recipe", file))
    name = str(recipe.pop("name", recipes.DEFAULT))
    chosen = recipes.from_table(name, recipe)
    stop = _stopping_rule(_table(table, "stop", file), file)
    volunteers = _table(table, "volunteers", file)
    _known(volunteers, VOLUNTEER_KEYS, f"[volunteers] of {file}")
    needs = _requirements(_table(table, "requirements", file), file)
    seed = _whole(table, "seed", file, 0)
    given = None if model else load_task(_text(table, "task", file), file.parent)
    data = load_data(_text(table, "data", file), file.parent, cache=cache, progress=progress)
    return JobPlan(
        task=given or ready_task(model, data, seed),
        data=data,
        title=_text(table, "title", file, default=file.stem),
        cause=_text(table, "cause", file, default=""),
        description=_text(table, "description", file, default=""),
        contact=_text(table, "contact", file, default=""),
        recipe=chosen,
        stop=stop,
        seed=seed,
        minimum=_whole(volunteers, "minimum", file, 0),
        maximum=_whole(volunteers, "maximum", file, 1000),
        start=_text(volunteers, "start", file, default="any"),  # type: ignore[arg-type]
        visibility=_text(volunteers, "visibility", file, default="public"),  # type: ignore[arg-type]
        invited=_texts(volunteers, "invited", file),
        admit=_text(volunteers, "admit", file) if "admit" in volunteers else None,  # type: ignore[arg-type]
        requirements=needs,
        spreading=_spreading(_table(table, "spread", file), file),
        validation=_whole(table, "validation", file, 0) if "validation" in table else None,
        weights=file.parent / _text(table, "weights", file) if "weights" in table else None,
    )


def load_task(target: str, folder: Path) -> Task:
    with uncollected():
        from crowdgrad.capture.task import Task

    return load_object(target, folder, Task)


def ready_task(model: ready.Model | None, data: DataSet | DataFolder, seed: int) -> Task:
    """Loads torch. Raises TaskError, DataError, JobFileError."""
    assert model is not None
    if not 0 <= seed < 1 << 64:
        raise JobFileError(f"seed {seed} is not a 64-bit number.", advice="Give a smaller one.")
    with uncollected():
        return ready.build(model, told_of(data), seed)


def load_data(
    source: str, folder: Path, *, cache: Path, progress: Progress | None = None
) -> DataSet | DataFolder:
    """A prepared folder, an .npz file or a name from the catalogue. Raises DataError."""
    if is_folder(folder / source):
        return open_folder(folder / source)
    if source.endswith(("/", "\\")) or (folder / source).is_dir():
        raise DataMissing(
            f"{folder / source} is no prepared data set.",
            advice="`crowdgrad data prepare SOURCE --out FOLDER` makes one.",
        )
    if not source.endswith(".npz"):
        return catalogue.load(source, cache=cache, progress=progress)
    file = folder / source
    if not file.is_file():
        raise DataMissing(f"There is no data file {file}.", advice="Check the key `data`.")
    return read_npz(file)


def parse(file: Path) -> Table:
    """Raises JobFileError."""
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise JobFileError(f"There is no file {file}.", advice="Check the name.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise JobFileError(f"{file} is not a TOML file: {error}.", advice="Mend it.") from None


def _model(table: Table, file: Path) -> ready.Model | None:
    """The ready-made model, where there is no task. Raises JobFileError."""
    if "task" in table and "model" in table:
        raise JobFileError(
            f"{file} has a 'task' and a [model].", advice="A job trains one of them: leave one out."
        )
    if "task" not in table and "model" not in table:
        raise JobFileError(
            f"{file} has neither 'task' nor [model].",
            advice='Add a line task = "module:object", or a table [model] with a kind.',
        )
    if "task" in table:
        return None
    return ready.model_of(_table(table, "model", file), f"[model] of {file}")


def _known(table: Table, keys: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(keys))
    if unknown:
        raise JobFileError(
            f"{where} has an unknown key {', '.join(map(repr, unknown))}.",
            advice=f"Known keys: {', '.join(keys)}.",
        )


def _table(table: Table, key: str, file: Path) -> Table:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise JobFileError(f"{key!r} of {file} is {value!r}.", advice=f"Make it a table [{key}].")
    return value


def _text(table: Table, key: str, file: Path, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise JobFileError(f"{key!r} of {file} is {value!r}.", advice="Write a text in quotes.")
    return value


def _texts(table: Table, key: str, file: Path) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise JobFileError(
            f"{key!r} of {file} is {value!r}.", advice='Write texts in brackets: ["…", "…"].'
        )
    return tuple(value)


def _whole(table: Table, key: str, file: Path, default: int) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise JobFileError(f"{key!r} of {file} is {value!r}.", advice="Write a whole number ≥ 0.")
    return value


def _number(table: Table, key: str, file: Path) -> float:
    value = table.get(key, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise JobFileError(f"{key!r} of {file} is {value!r}.", advice="Write a number ≥ 0.")
    return float(value)


def _flag(table: Table, key: str, file: Path) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise JobFileError(f"{key!r} of {file} is {value!r}.", advice="Write true or false.")
    return value


def _requirements(table: Table, file: Path) -> Requirements:
    where = f"[requirements] of {file}"
    _known(table, REQUIREMENT_KEYS, where)
    cores = _whole(table, "cores", file, 1)
    if not 0 < cores <= MAX_CORES:
        raise JobFileError(f"{where}: {cores} cores.", advice=f"Ask for 1 to {MAX_CORES}.")
    try:
        return Requirements(
            cores=cores,
            memory_mb=_whole(table, "memory_mb", file, 0),
            gpu=_flag(table, "gpu", file),
            gpu_memory_mb=_whole(table, "gpu_memory_mb", file, 0),
            gflops=_number(table, "gflops", file),
            download_mbps=_number(table, "download_mbps", file),
            engines=frozenset(_texts(table, "engines", file)),
            kinds=frozenset(_texts(table, "kinds", file)),  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise JobFileError(f"{where}: {error}.", advice="Mend that value.") from None


def _spreading(table: Table, file: Path) -> Spreading:
    where = f"[spread] of {file}"
    _known(table, SPREAD_KEYS, where)
    mirrors = _texts(table, "mirrors", file)
    try:
        for mirror in mirrors:
            check_address(mirror)
        return Spreading(
            plan=_text(table, "plan", file, default="swarm"),  # type: ignore[arg-type]
            share=_text(table, "share", file, default="needed"),  # type: ignore[arg-type]
            mirrors=mirrors,
        )
    except ValueError as error:
        raise JobFileError(
            f"{where}: {error}.",
            advice=f"Plans are {', '.join(PLANS)}; what each gets is {', '.join(SHARES)}.",
        ) from None


def _stopping_rule(table: Table, file: Path) -> StoppingRule:
    _known(table, tuple(field.name for field in fields(StoppingRule)), f"[stop] of {file}")
    try:
        return StoppingRule(**{"epochs": 5, **table})  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise JobFileError(f"[stop] of {file}: {error}.", advice="Mend that value.") from None
