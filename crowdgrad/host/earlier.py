"""A run that is over, as a later one or `crowdgrad predict` finds it on the disk.

A run that continues another starts from its best parameters and buffers and keeps its splits: what
was validated or tested on then is never trained on now. Orders of batches and noise are new ones,
since they come from the job's seed, which moves on by 2³² each time. What the optimiser remembered
is not carried over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crowdgrad.errors import DataMalformed, DataMissing, JobFileError

SEED_STEP = 1 << 32
SEEDS = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    folder: Path
    id: str
    title: str
    split_seed: int
    """What its data was split and shuffled with."""
    times: int
    """How many runs it continued itself, one after the other."""
    records: Mapping[str, int]
    """Of each split."""
    told: Mapping[str, object]
    """All of its job.json."""

    @property
    def weights(self) -> Path:
        return self.folder / "model.safetensors"

    def next_seed(self) -> int:
        """The seed of a run that continues it: the same splits, other orders and noise."""
        return (self.split_seed + (self.times + 1) * SEED_STEP) % SEEDS

    def check(self, *, seed: int, records: Mapping[str, int]) -> None:
        """Raises JobFileError where a job would not have the run's splits."""
        advice = "To start on other data from these weights, give them as `weights`."
        if seed != self.split_seed:
            raise JobFileError(
                f"{self.id} was split with the seed {self.split_seed}, this job with {seed}: what "
                "it was validated on would be trained on.",
                advice=f"Write seed = {self.split_seed}. {advice}",
            )
        if dict(records) != dict(self.records):
            raise JobFileError(
                f"{self.id} had {_spell(self.records)}, this job has {_spell(records)}.",
                advice=advice,
            )


def find_run(name: str, runs: Path) -> Path:
    """The folder of a run: itself, that of its id in `runs`, or the `last`. Raises DataMissing."""
    for folder in (Path(name), runs / name):
        if (folder / "job.json").is_file():
            return folder
    ids = sorted(file.parent.name for file in runs.glob("*/job.json"))  # they begin with the time
    if name == "last" and ids:
        return runs / ids[-1]
    last = f"The last in {runs} is {ids[-1]}." if ids else f"There are none in {runs}."
    raise DataMissing(f"There is no run {name}.", advice=f"Give its folder or its id. {last}")


def read_run(folder: Path) -> Earlier:
    """Raises DataMissing, DataMalformed; a run that still goes on has no model yet."""
    try:
        told = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        found = Earlier(
            folder=folder,
            id=str(told["id"]),
            title=str(told["title"]),
            split_seed=int(told.get("split_seed", told["seed"])),
            times=int(told.get("continued", 0)),
            records={str(k): int(v) for k, v in told["data"]["records"].items()},
            told=told,
        )
    except FileNotFoundError:
        raise DataMissing(f"{folder} is not a run.", advice="It has no job.json.") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataMalformed(
            f"{folder / 'job.json'} cannot be read: {type(error).__name__}: {error}.",
            advice="Choose another run.",
        ) from error
    if not found.weights.is_file():
        raise DataMissing(
            f"The run {found.id} has no model yet (it is {told.get('state', 'unknown')}).",
            advice="Wait for its end, or choose another run.",
        )
    return found


def _spell(records: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in records.items()) + " records"
