"""What happens in the room, told to the log and to the figures."""

from __future__ import annotations

import logging

from crowdgrad.matchmaker.logs import log_event
from crowdgrad.matchmaker.metrics import Metrics
from crowdgrad.matchmaker.refusal import Refusal

logger = logging.getLogger(__name__)

OFTEN = frozenset({"passed", "kept"})
"""Many a second: counted, and no line in the log."""


class Telling:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __call__(self, event: str, **fields: str | int | float | bool) -> None:
        if event == "joined":
            self._metrics.joined()
        elif event == "matched":
            self._metrics.matched(float(fields["waited_s"]))
        elif event == "refused":
            self._metrics.refused(int(fields["status"]))
        elif event == "passed":
            self._metrics.passed(float(fields["seconds"]))
        elif event == "kept":
            self._metrics.kept(float(fields["seconds"]))
        elif event == "dialled":
            self._metrics.dialled(str(fields["result"]), float(fields["seconds"]))
        if event not in OFTEN:
            log_event(logger, event, **fields)

    def refused(self, refusal: Refusal) -> None:
        self("refused", status=refusal.status, code=refusal.error.code, why=refusal.error.message)
