"""The course of a job: its phases, what evaluations found, and how it ends.

    training → validating (the last parameters) → testing (the best, once) → over

The test set is looked at once, at the end, with the parameters that did best on the validation
split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from crowdgrad.domain.data import Manifest
from crowdgrad.domain.job import Job, JobState
from crowdgrad.domain.program import ProgramSpec
from crowdgrad.domain.work import Version
from crowdgrad.host.evaluation import Evaluation, EvaluationKind, Scores
from crowdgrad.host.looking import Look, Looking
from crowdgrad.numerics.evenly import bounded
from crowdgrad.numerics.vectors import Vector
from crowdgrad.planner.pieces import Pieces
from crowdgrad.planner.stopping import should_stop

Phase = Literal["training", "validating", "testing", "over"]
EVALUATE_EVERY_S = (0.5, 5.0)
"""The least and the most between two evaluations; in between, a twentieth of the time so far."""
EVALUATE_SHARE = 0.05
"""The most of worker 0's time that evaluations take, however long one of them does."""

MAX_HISTORY = 4096
"""Evaluations remembered."""
EXPLODING = 3.0
"""How many times worse than the best a loss may be and still be no explosion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    state: JobState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseState:
    """What a checkpoint keeps of a course. The best parameters are kept in a file of their own."""

    elapsed_s: float = 0.0
    history: tuple[Scores, ...] = ()
    best: Scores | None = None
    tested: Scores | None = None
    ending: Ending | None = None
    paused: bool = False
    begun: bool = False
    """Whether training has begun at all."""
    looks: tuple[Look, ...] = ()
    """The last looks at single training records."""


class Course:
    def __init__(
        self,
        job: Job,
        spec: ProgramSpec,
        manifest: Manifest,
        initial: Vector,
        looking: Looking | None = None,
    ) -> None:
        """`initial` does not change any more: it is the best there is until something is better.

        `looking`: at single training records, where somebody wants that.
        """
        self.phase: Phase = "training"
        self.ending: Ending | None = None
        self.started_at: float | None = None
        self.history: list[Scores] = []
        self.tested: Scores | None = None
        self.best: Scores | None = None
        self.best_vector: Vector = initial
        self.paused = False
        self.evaluation = Evaluation(manifest, local=job.local, spec=spec)
        self.looking = looking
        self._rule = job.stop
        self._metric = spec.metrics[0] if spec.metrics else None
        self._evaluated_at = -math.inf
        self._paused_at: float | None = None
        self._look_progress = 0.0

    def begin(self, now: float) -> None:
        """The first unit is given; what was before does not count."""
        if self.started_at is None:
            self.started_at = now

    def elapsed_s(self, now: float) -> float:
        """Seconds of training, pauses and what a dead host missed not counted."""
        if self.started_at is None:
            return 0.0
        return (now if self._paused_at is None else self._paused_at) - self.started_at

    # -- pauses and checkpoints ---------------------------------------------------------------

    def pause(self, now: float) -> bool:
        """No further units; False where it was paused already."""
        if self.paused:
            return False
        self.paused, self._paused_at = True, now
        return True

    def go_on(self, now: float) -> bool:
        """Whether it was paused until now."""
        if not self.paused:
            return False
        if self.started_at is not None and self._paused_at is not None:
            self.started_at += now - self._paused_at
        self.paused, self._paused_at = False, None
        return True

    def snapshot(self, now: float) -> CourseState:
        return CourseState(
            elapsed_s=self.elapsed_s(now),
            history=tuple(self.history),
            best=self.best,
            tested=self.tested,
            ending=self.ending,
            paused=self.paused,
            begun=self.started_at is not None,
            looks=tuple(self.looking.looks) if self.looking is not None else (),
        )

    def restore(
        self, now: float, state: CourseState, best_vector: Vector | None, *, anew: bool
    ) -> None:
        """Go on from where another host stopped; `anew`: also if it had decided to end.

        Where the best parameters were lost, so is their score: something else will be the best.
        """
        self.started_at = now - state.elapsed_s if state.begun else None
        self.history = list(state.history)
        if self.looking is not None and state.looks:
            self.looking.restore(state.looks)
        self.best = None
        if best_vector is not None and state.best is not None:
            self.best, self.best_vector = state.best, best_vector
        self.paused = state.paused and not anew
        self._paused_at = now if self.paused else None
        if not anew and state.ending is not None and state.ending.state == "finished":
            self.end(state.ending.state, state.ending.reason)

    def end(self, state: JobState, reason: str) -> None:
        """Training is over. What finished is still validated and tested; the rest ends now."""
        self.ending = Ending(state=state, reason=reason)
        self.phase = "validating" if state == "finished" else "over"

    def close_round(self, now: float, train_loss: float | None) -> Scores | None:
        """What a finished round of evaluation found; the best so far is kept."""
        self._close_look(now)
        closed = self.evaluation.take_scores(self.elapsed_s(now), train_loss)
        if closed is None:
            return None
        scores, vector = closed
        if scores.kind == "test":
            self.tested = scores
            return scores
        self.history.append(scores)
        self.history = bounded(self.history, MAX_HISTORY, lambda seen: seen.at_s)
        if scores.better_than(self.best):
            self.best, self.best_vector = scores, vector
        return scores

    def _close_look(self, now: float) -> None:
        seen = self.evaluation.take_look()
        if seen is None or self.looking is None:
            return
        self.looking.add(
            now,
            {int(number): loss for number, loss in seen.metric_values.items()},
            at_s=self.elapsed_s(now),
            progress=self._look_progress,
            cost_s=seen.compute_s,
            last=self.phase == "testing",
        )

    def give_up_look(self, why: str) -> None:
        """A record cannot be looked at alone: there is no further look."""
        if self.looking is not None and self.evaluation.round is not None:
            self.evaluation.round = None
            self.looking.give_up(f"a single record could not be computed: {why}")

    def plausible(self, scores: Scores) -> bool:
        """Whether somebody may want to go back to it: not where the loss is already exploding."""
        least = min(s.loss for s in self.history if math.isfinite(s.loss))
        return scores.loss - least <= EXPLODING * abs(least) + 1.0

    def decide(self, now: float, version: Version, *, all_done: bool, but: str = "") -> None:
        """Go on to the next phase where this one is over; `but` is said with the reason."""
        if self.phase == "training":
            over, reason = should_stop(
                self._rule,
                all_done=all_done,
                metric=self._watched(),
                better=self._metric.better if self._metric else "higher",
                elapsed_s=self.elapsed_s(now),
            )
            if over:
                self.end("finished", reason + but)
        if (
            self.phase == "validating"
            and self.evaluation.round is None
            and self._up_to_date(version)
        ):
            self.phase = "testing"
        nothing_to_test = self.tested is not None or not self.evaluation.has("test")
        if self.phase == "testing" and nothing_to_test and not self._last_look_due:
            self.phase = "over"

    @property
    def _last_look_due(self) -> bool:
        """Whether there is to be another look, with the best parameters."""
        return self.looking is not None and not self.looking.over

    def _watched(self) -> float | None:
        """What the first metric was when last looked at."""
        if self._metric is None or not self.history:
            return None
        return self.history[-1].metrics[self._metric.name]

    def wanted_round(
        self, now: float, version: Version, progress: float = 0.0
    ) -> EvaluationKind | None:
        """`progress`: how far training has come, 0 to 1."""
        if self.evaluation.round is not None or self.started_at is None:
            return None
        if self.phase == "testing":  # `decide` has gone on where there is nothing to test
            return "look" if self._last_look_due else "test"
        if self._validation_due(now, version):
            return "validate"
        if self.phase == "training" and self.looking is not None:
            due = self.looking.due(now, self.elapsed_s(now), progress)
            self._look_progress = progress
            return "look" if due else None
        return None

    def _validation_due(self, now: float, version: Version) -> bool:
        if not self.evaluation.has("validate") or self._up_to_date(version):
            return False
        least, most = EVALUATE_EVERY_S
        pause_s = min(most, max(least, 0.05 * self.elapsed_s(now)))
        pause_s = max(pause_s, self.evaluation.cost_s / EVALUATE_SHARE)
        due = now - self._evaluated_at >= pause_s
        return self.phase == "validating" or (self.phase == "training" and due)

    def begin_round(
        self,
        now: float,
        kind: EvaluationKind,
        vector: Vector,
        version: Version,
        *,
        epoch: float,
        lease_s: float,
    ) -> None:
        """`vector` is the round's own; at the end it is the best parameters that are looked at."""
        if self.phase == "testing" and self.best is not None:
            vector, version = self.best_vector, self.best.version
        if kind == "look":
            assert self.looking is not None
            pieces = Pieces(self.looking.plans, self.looking.pieces())
            self.evaluation.look(pieces, vector, version, epoch, lease_s)
            return
        self._evaluated_at = now
        self.evaluation.begin(kind, vector, version, epoch, lease_s)

    def _up_to_date(self, version: Version) -> bool:
        if not self.evaluation.has("validate"):
            return True
        return bool(self.history) and self.history[-1].version == version
