"""Going on with a run: what its folder holds, put together again.

`resume/` has the job (`kept_job.py`), the checkpoints (`checkpoint_files.py`) and where the host
was reached (`serving.json`), so that volunteers who keep dialling find it again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from crowdgrad.domain.work import Version
from crowdgrad.errors import DataMalformed, DataMissing, JobFileError
from crowdgrad.files import disk_errors, write_whole
from crowdgrad.host.door import Admit
from crowdgrad.host.folder import RESUME
from crowdgrad.host.job import Prepared
from crowdgrad.host.keeping import kept_job
from crowdgrad.host.keeping.checkpoint_checks import misfit
from crowdgrad.host.keeping.checkpoint_files import CheckpointFiles, Found, Name

CHECKPOINTS = "checkpoints"
SERVING = "serving.json"
UNDER_WAY = ("running", "ending")
"""States in job.json of a run that its host has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Where a host was reached, and by whom it was published."""

    host: str
    port: int
    http_port: int = 0
    advertise: str | None = None
    matchmaker: str | None = None
    matchmaker_key: str = ""
    """What its introductions are signed with, in hexadecimal digits."""
    admit: Admit | None = None
    """Whom the host lets in, where its command line said so."""
    helpers: int = 0
    own_servers: int = 0
    """Parameter servers on the host's own machine."""
    servers: tuple[str, ...] = ()
    """Parameter servers elsewhere."""
    servers_hold: str = "parts"
    average_every: int = 100
    relays: tuple[str, ...] = ()
    """Relays of the owner's choice."""
    router: bool = True
    page: tuple[str, int] | None = None
    """Where its public page was."""

    def __post_init__(self) -> None:
        bytes.fromhex(self.matchmaker_key)


@dataclass(slots=True, kw_only=True)
class GoingOn:
    """A run to go on with. Its vectors are large: `take` them, and nobody else keeps them."""

    folder: Path
    prepared: Prepared
    found: Found | None
    version: Version
    """Of the checkpoint."""
    newest: Name | None
    """The checkpoint written last, when we looked."""
    serving: Serving | None
    was: str
    """How the run had ended; one of `UNDER_WAY`: its host died."""
    changed: bool
    """Whether the job is another now: it trains for longer."""
    skipped: tuple[str, ...] = ()
    """Checkpoints that could not be used, each with the reason."""

    @property
    def anew(self) -> bool:
        """Whether it had come to its end, and is to go on all the same."""
        return self.was not in UNDER_WAY

    def take(self) -> Found:
        """The checkpoint and the best parameters, once."""
        found, self.found = self.found, None
        assert found is not None, "taken before"
        return found


def find(folder: Path, epochs: int | None = None) -> GoingOn:
    """All that is needed to go on; `epochs`: until so many are done, in all.

    Raises DataMissing, DataError, JobFileError or what an altered program does.
    """
    was = state_of(folder)
    if was == "finished" and epochs is None:
        raise JobFileError(
            f"The run {folder.name} is finished.",
            advice=f"To train it further: crowdgrad host --resume {folder} --epochs N.",
        )
    kept = folder / RESUME
    with disk_errors(kept, "Its files must be yours to read."):
        files = CheckpointFiles(kept / CHECKPOINTS)
        newest = files.newest()  # before: what is written meanwhile must not pass for read
        found = files.load()
    if found is None:
        raise DataMissing(
            f"{folder} has no checkpoint to go on from.",
            advice="It ended before the first was written: start it again.",
        )
    with disk_errors(kept):
        prepared = kept_job.load(kept)
    if epochs == prepared.job.stop.epochs and was != "finished":
        epochs = None  # as it is
    begun = 1 + max(p.epoch for p in found.checkpoint.book.assignment.progress)
    if epochs is not None and epochs < begun + (was == "finished"):
        raise JobFileError(
            f"Epoch {begun} has begun already.", advice=f"Give more than {begun} epochs."
        )
    state = found.checkpoint.saved.vector.copy()
    ready = kept_job.going_on(prepared, state, epochs, only_epochs=was == "finished")
    _check(ready, found, folder)
    return GoingOn(
        folder=folder,
        prepared=ready,
        found=found,
        version=found.checkpoint.saved.version,
        newest=newest,
        serving=_recall(kept),
        was=was,
        changed=epochs is not None,
        skipped=found.skipped,
    )


def _check(prepared: Prepared, found: Found, folder: Path) -> None:
    """Whether the checkpoint is one of this job. Raises DataMalformed."""
    wrong = misfit(
        found.checkpoint,
        job=prepared.job,
        spec=prepared.program.spec,
        manifest=prepared.manifest,
        recipe=prepared.recipe,
    )
    if wrong:
        raise DataMalformed(
            f"The checkpoint in {folder} does not fit its job: {wrong}.",
            advice="Copy the run again from where it is whole.",
        )


def remember(folder: Path, serving: Serving) -> None:
    """Raises OSError."""
    write_whole(folder / RESUME / SERVING, json.dumps(asdict(serving)).encode())


def _recall(kept: Path) -> Serving | None:
    try:
        return msgspec.json.decode((kept / SERVING).read_bytes(), type=Serving)
    except (OSError, msgspec.MsgspecError):
        return None  # then it is reached anew, at another address


def state_of(folder: Path) -> str:
    """How a run stands, by its job.json."""
    try:
        told = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        return str(told["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return "running"  # it died before, or while, it wrote that
