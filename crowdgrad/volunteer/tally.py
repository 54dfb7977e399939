"""What this machine has given to each job, by its own count: what its key countersigns.

An update is *open* from when it was computed until its verdict is heard. A host counts it somewhere
in between, and where the connection or we ourselves are lost, the verdict is never heard: so what a
host says we gave may be more than was answered, but never more than that and what is open.

The count outlives us in a small file, so that an offer can be judged that comes after the job. It
is written every few seconds with a reserve, and at once when that is used up: whenever we crash,
what is open there covers all we have sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from crowdgrad.domain.job import MAX_TITLE, JobId
from crowdgrad.domain.matching import Gift
from crowdgrad.domain.work import MAX_COUNT
from crowdgrad.errors import one_line
from crowdgrad.files import write_whole

logger = logging.getLogger(__name__)

NAME = "given.json"
MAX_JOBS = 256
MAX_FILE_BYTES = 1 << 20
KEEP_S = 5.0
ROUNDING = 1e-6
"""What sums of the same numbers may differ by, of the whole."""


class Given(msgspec.Struct, kw_only=True):
    """What was given to one job; it changes with every update, between two of them."""

    job: str
    title: str = ""
    work: float = 0.0
    """FLOP of a sample, as the job's program says."""
    units: int = 0
    samples: int = 0
    open_units: int = 0
    open_samples: int = 0

    def __post_init__(self) -> None:
        counts = (self.units, self.samples, self.open_units, self.open_samples)
        if not all(0 <= count < MAX_COUNT for count in counts) or not 0 <= self.work < 1e30:
            raise ValueError(f"what was given to {self.job[:70]!r} makes no sense")
        if not 0 < len(self.job) <= 64 or len(self.title) > MAX_TITLE:
            raise ValueError(f"job {self.job[:70]!r}")

    def with_open(self, units: int, samples: int) -> Given:
        """A copy with so much more open."""
        return msgspec.structs.replace(
            self, open_units=self.open_units + units, open_samples=self.open_samples + samples
        )


_decoder = msgspec.json.Decoder(list[Given])


def judge(given: Given | None, gift: Gift) -> tuple[bool, str]:
    """Whether a host's word on what we gave is to be countersigned; if not, why not."""
    if given is None:
        return False, "nothing is known here of work for it"
    units, samples = given.units + given.open_units, given.samples + given.open_samples
    if gift.units > units or gift.samples > samples:
        return False, (
            f"that would be {gift.units:,} updates with {gift.samples:,} samples, but here were "
            f"counted {given.units:,} with {given.samples:,}, and {given.open_units:,} with "
            f"{given.open_samples:,} of which nothing was heard"
        )
    if gift.flop > given.work * gift.samples * (1 + ROUNDING):
        return False, "it reckons more work for each sample than the program says"
    return True, ""


class Tally:
    def __init__(self, file: Path | None, clock: Callable[[], float]) -> None:
        """`file`: None for a key that is gone with this process. Never raises for a disk."""
        self._file = file
        self._clock = clock
        self._rows: dict[str, Given] = {} if file is None else {g.job: g for g in _read(file)}
        self._job = ""
        self._kept_at = clock()
        self._since = self._reserve = (0, 0)
        """Units and samples since it was written, and how many more were counted then."""

    def of(self, job: JobId) -> Given | None:
        return self._rows.get(job)

    def all(self) -> list[Given]:
        return list(self._rows.values())

    def begin(self, job: JobId, title: str, work: float) -> None:
        """Count for this job from now on, from where we were."""
        self.keep()
        before = self._rows.pop(job, None) or Given(job=job)
        title = one_line(title)[:MAX_TITLE]
        self._rows[job] = msgspec.structs.replace(before, title=title, work=work)
        while len(self._rows) > MAX_JOBS:  # the one begun longest ago
            del self._rows[next(iter(self._rows))]
        self._job = job
        self.keep()

    def computed(self, samples: int) -> None:
        """An update is about to go out; nothing is known of it yet."""
        given = self._rows[self._job]
        given.open_units += 1
        given.open_samples += samples
        units, more = self._since[0] + 1, self._since[1] + samples
        self._since = units, more
        used_up = units > self._reserve[0] or more > self._reserve[1]
        if used_up or self._clock() - self._kept_at >= KEEP_S:
            self._write(reserve=(2 * units, 2 * more))

    def answered(self, samples: int, *, accepted: bool) -> None:
        """One of them was heard of."""
        given = self._rows[self._job]
        given.open_units -= 1
        given.open_samples -= samples
        if accepted:
            given.units += 1
            given.samples += samples

    def keep(self) -> None:
        """Write it as it is: the work is over, for now."""
        if self._job:
            self._write()

    def _write(self, reserve: tuple[int, int] = (0, 0)) -> None:
        self._kept_at, self._since, self._reserve = self._clock(), (0, 0), reserve
        if self._file is None:
            return
        # As it lies there: another process with this key may have written of other jobs.
        rows = {given.job: given for given in _read(self._file)} or dict(self._rows)
        rows.pop(self._job, None)
        rows[self._job] = self._rows[self._job].with_open(*reserve)
        text = msgspec.json.encode(list(rows.values())[-MAX_JOBS:])
        try:
            write_whole(self._file, text, sync=False, private=True)
        except OSError as error:  # what comes too late is not countersigned then
            logger.warning("what was given cannot be kept: %s", error.strerror)


def _read(file: Path) -> list[Given]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        return _decoder.decode(file.read_bytes())[-MAX_JOBS:]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        logger.warning("%s cannot be read: %s", file, one_line(str(error))[:300])
        return []
