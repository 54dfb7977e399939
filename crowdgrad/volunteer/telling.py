"""What an agent tells whoever watches, one sentence each.

How it is, and how hard it works, is not said twice in a row.
"""

from __future__ import annotations

from collections.abc import Callable

from crowdgrad.domain.manners import Effort
from crowdgrad.domain.work import Unit, Update
from crowdgrad.errors import one_line
from crowdgrad.volunteer.events import Event, Kind, Phase, Watch

Data = dict[str, str | int | float]


class Telling:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._last: dict[Kind, str] = {}

    def say(
        self, kind: Kind, text: str, *, phase: Phase | None = None, data: Data | None = None
    ) -> None:
        if kind in ("state", "effort"):
            if text == self._last.get(kind):
                return  # said already
            self._last[kind] = text
        text = one_line(text)  # some of it may be a stranger's words, and it goes to a screen
        self._watch(Event(kind=kind, text=text, phase=phase, data=data or {}))

    def of_effort(self, effort: Effort, *, works: bool) -> None:
        """`works`: there is something here that it concerns."""
        if effort.share > 0 and not works and "effort" not in self._last:
            return  # it is said when something does
        self.say("effort", effort.reason, data={"share": effort.share, "threads": effort.threads})

    def of_unit(
        self, update: Update, *, samples: int, accepted: int, refused: int, share: float | None
    ) -> None:
        """All but the update: of this job until now."""
        data: Data = {
            "samples": samples,
            "accepted": accepted,
            "refused": refused,
            "loss": update.loss,
            "seconds": update.compute_s,
        }
        if share is not None:
            data["share"] = share
        text = f"Unit {update.unit}: {update.samples} samples, loss {update.loss:.4f}."
        self._watch(Event(kind="unit", text=text, data=data))

    def of_data(self, unit: Unit) -> Callable[[int, int], None]:
        """Hears how many of the chunks of a unit's shard are here."""

        def report(done: int, total: int) -> None:
            self._watch(
                Event(
                    kind="progress",
                    text=f"Data: shard {unit.shard}, {done} of {total} chunks.",
                    data={"shard": unit.shard, "done": done, "total": total},
                )
            )
            if done == total:
                self.say("note", f"The data of shard {unit.shard} is here.")

        return report
