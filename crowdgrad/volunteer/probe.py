"""What this machine is, as a volunteer describes itself."""

from __future__ import annotations

import os

from crowdgrad import __version__
from crowdgrad.domain.job import Volunteer
from crowdgrad.net.identity import Identity

ENGINE = "onnxruntime"
OWN_ENGINE = "PyTorch"


def describe(identity: Identity, name: str, *, own_model: bool = False) -> Volunteer:
    return Volunteer(
        id=identity.id,
        name=name or f"volunteer-{identity.id[:6]}",
        cores=os.cpu_count() or 1,
        memory_mb=_memory_mb(),
        engine=OWN_ENGINE if own_model else ENGINE,
        software=f"crowdgrad {__version__}",
    )


def _memory_mb() -> int:
    if not hasattr(os, "sysconf"):
        return 0  # unknown: said as such rather than guessed
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
