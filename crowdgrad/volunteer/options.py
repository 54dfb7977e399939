"""What the command line says of one `crowdgrad work`, beside the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crowdgrad.domain.manners import Limits
from crowdgrad.volunteer.talk import Trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    target: str | None
    """HOST:PORT, a job's code, id or link, or None for whoever needs help."""
    guest: bool = False
    """Use a key for this process only."""
    seed: str = ""
    """What that key is made from; empty: a new one."""
    once: bool = False
    """End after the first job, as one does who named it."""
    token: str = ""
    """Of the host's own worker."""
    pace_s: float = 0.0
    """How long to pause after every batch: a slow machine, played."""
    yes: bool = False
    """Help whoever it is, without a question."""
    trusted: Trusted | None = None
    """A model on this machine's own disk to compute with, instead of the program."""
    causes: tuple[str, ...] = ()
    """What to help before anything else; none: those of the settings."""
    hosts: tuple[str, ...] = ()
    """Fingerprints of the only hosts to help; none: any."""
    announce: Path | None = None
    """Serve the HTTP API, and write to this file where it is found."""
    http_port: int = 0
    limits: Limits | None = None
    """How hard to work; None: as the settings say. What both know must be the same in them."""
    hosted: bool = False
    """A host started it on its own machine: it works as hard as it can."""
