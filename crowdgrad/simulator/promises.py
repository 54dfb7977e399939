"""What the disk has promised: which checkpoints must be there after a power cut.

A checkpoint that was handed to the disk may be there afterwards; one whose write has returned must
be. Whatever is read must be one that was written, to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from crowdgrad.domain.work import Version
from crowdgrad.host.keeping.checkpoint import Checkpoint
from crowdgrad.host.keeping.checkpoint_bytes import Best, encode_checkpoint
from crowdgrad.host.keeping.checkpoint_files import Found
from crowdgrad.simulator.job import SmallJob
from crowdgrad.simulator.story import Story


@dataclass(kw_only=True)
class Versions:
    """The state behind every version there ever was, and what was credited by then."""

    states: dict[Version, bytes] = field(default_factory=dict)
    credit: dict[Version, dict[int, int]] = field(default_factory=dict)
    """Samples, by position in the roster: worker 0 comes with many keys."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A checkpoint that was given to the disk."""

    mark: bytes
    version: Version
    best: bool
    """Whether the best parameters went with it."""


class Promises:
    def __init__(self, job: SmallJob, story: Story, versions: Versions) -> None:
        self._job = job
        self._story = story
        self._versions = versions
        self._claimed = -1
        self._handed: list[Handed] = []
        self._promised = -1
        """The newest checkpoint that the disk must have."""

    # -- writing ------------------------------------------------------------------------------

    def claimed(self, incarnation: int) -> None:
        self._story.tell(f"incarnation {incarnation} is claimed")
        self._story.must(
            incarnation > self._claimed,
            "incarnation",
            f"{incarnation} was claimed after {self._claimed}",
        )
        self._claimed = max(incarnation, self._claimed)

    def handed(self, checkpoint: Checkpoint, best: Best | None) -> int:
        """A checkpoint goes to the disk; returns its number."""
        version, number = checkpoint.saved.version, len(self._handed)
        self._story.tell(f"checkpoint {number} of {version} goes to the disk")
        self._story.counts["checkpoints"] += 1
        self._check_state(checkpoint)
        self._check_book(checkpoint)
        if best is not None:
            self._check_best(best)
        else:
            missing = checkpoint.course.best is not None
            self._story.must(not missing, "best", "the best parameters were not kept")
        self._handed.append(Handed(_mark(checkpoint), version, best is not None))
        return number

    def _check_state(self, checkpoint: Checkpoint) -> None:
        version = checkpoint.saved.version
        self._story.must(
            self._versions.states.get(version) == checkpoint.saved.vector.tobytes(),
            "checkpoint",
            f"the checkpoint of {version} holds another state",
        )
        credited = {a.position: a.samples for a in checkpoint.ledger.accounts if a.samples}
        expected = {who: n for who, n in self._versions.credit.get(version, {}).items() if n}
        self._story.must(
            credited == expected,
            "checkpoint",
            f"the checkpoint of {version} credits {credited} instead of {expected}",
        )

    def _check_book(self, checkpoint: Checkpoint) -> None:
        book, state = checkpoint.book, checkpoint.saved.vector
        inside = int(state.sum())
        self._story.must(
            book.done_batches == inside,
            "checkpoint",
            f"{book.done_batches} batches are done, {inside} are in the parameters",
        )
        if not self._job.overlapping:
            both = [
                kept.unit.id
                for kept in book.waiting
                if any(state[place] for place in self._job.places(kept.unit))
            ]
            self._story.must(not both, "twice", f"units {both} are applied, and wait")

    def _check_best(self, best: Best) -> None:
        version = best.scores.version
        same = self._versions.states.get(version) == best.vector.tobytes()
        self._story.must(same, "best", f"{version} was another state")

    def promised(self, number: int) -> None:
        """The disk says that it has it."""
        self._story.tell(f"checkpoint {number} is on the disk")
        self._promised = max(self._promised, number)

    def acknowledged(self, version: Version | None) -> None:
        """The host says that it would go on from here."""
        kept = [handed.version for handed in self._handed[: self._promised + 1]]
        self._story.must(
            version is None or version in kept,
            "acknowledged",
            f"{version} is said to be on the disk, and is not",
        )

    # -- reading ------------------------------------------------------------------------------

    def found(self, found: Found | None) -> int:
        """What a disk holds after a power cut; returns the number of the checkpoint, or -1."""
        if found is None:
            self._story.must(self._promised < 0, "lost", f"checkpoint {self._promised} is gone")
            return -1
        numbers = self.numbers_of([found.checkpoint])
        if not numbers:
            self._story.violate("altered", "a checkpoint was read that was never written")
            return -1
        number = numbers[0]
        self._story.must(
            number >= self._promised,
            "lost",
            f"checkpoint {number} was found instead of {self._promised}",
        )
        if found.best is not None:
            self._check_best(found.best)
        elif self._handed[number].best:
            self._story.violate("best", "the best parameters are gone")
        return number

    def numbers_of(self, checkpoints: Iterable[Checkpoint]) -> list[int]:
        """The latest numbers under which they were handed to the disk, if they were."""
        numbers = {handed.mark: number for number, handed in enumerate(self._handed)}
        return [numbers[mark] for c in checkpoints if (mark := _mark(c)) in numbers]

    def goes_on_from(self, number: int) -> None:
        """A host goes on from it: what it could read once must be readable again."""
        self._promised = max(self._promised, number)

    def forgive(self, newest_left: int) -> None:
        """A bit has flipped: what is promised is only what is left."""
        self._promised = min(self._promised, newest_left)


def _mark(checkpoint: Checkpoint) -> bytes:
    """What tells one checkpoint from another; the best parameters lie in a file of their own."""
    course = replace(checkpoint.course, best=None)
    header, parts = encode_checkpoint(replace(checkpoint, course=course))
    found = hashlib.sha256(header)
    for part in parts.values():
        found.update(part)
    return found.digest()
