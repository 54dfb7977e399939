"""Everything that can go wrong, in one tree, split by who must act.

    CrowdgradError                       a sentence, what to do next, and a stable code
    ├── UserError                        the person at the keyboard can put it right
    │   ├── JobFileError        CG101    the job file says something we do not understand
    │   ├── RecipeError         CG102    a hyperparameter makes no sense
    │   ├── TaskError           CG103    the task (model, loss, example batch) makes no sense
    │   ├── SettingError        CG104    a setting has a value it cannot have
    │   ├── TargetError         CG105    `module:object`, link, code or address names nothing
    │   └── NotAgreed           CG106    nobody here has agreed to this
    ├── MachineError                     this machine or its network is in the way
    │   ├── PortBusy            CG201    someone else listens on the port
    │   ├── Unreachable         CG202    nobody answers at an address
    │   ├── DiskFull            CG203    the disk has no room for what must be written
    │   ├── MissingExtra        CG204    an optional part of crowdgrad is not installed
    │   ├── ChildDied           CG205    a process we started ended unasked
    │   ├── CannotWrite         CG206    a file or folder cannot be written
    │   ├── RefusedHere         CG207    a job that went wrong too often on this machine
    │   ├── WallsMissing        CG208    this system cannot keep the trainer in as its owner wants
    │   ├── RunBusy             CG209    another host is at work on the same run
    │   ├── RouterError         CG210    the router opens no port for us
    │   └── NoNeighbours        CG211    nobody can be found on this network
    ├── ProgramError                     a model that cannot travel, or must not run
    │   ├── CaptureError        CG301    PyTorch cannot turn the model into a graph
    │   ├── GateError           CG302    the program computes something else than autograd
    │   ├── ProgramRefused      CG303    the program is off the allow-list
    │   └── ComputeError        CG304    the runtime could not compute a unit
    ├── DataError                        data that is missing, altered or misshapen
    │   ├── DataMissing         CG401    a file or data set is not there
    │   ├── DataAltered         CG402    bytes do not match their hash
    │   ├── DataMalformed       CG403    bytes are not in the format they claim
    │   └── BadRecords          CG404    more records of a source are bad than may be
    └── PeerError                        the other side broke the protocol or turned us away
        ├── FrameError          CG501    bytes that are not one of our frames
        ├── VersionMismatch     CG502    the two sides speak different protocol versions
        ├── MessageError        CG503    a well-formed frame that says something out of place
        ├── UpdateRefused       CG504    an update that cannot be used
        ├── ConnectionLost      CG505    the connection ended or fell silent
        ├── TurnedAway          CG506    the other side does not want us (full, over, unknown)
        ├── Replaced            CG507    somebody with the same key has come since
        ├── NotDialled          CG508    a host sends us to an address near ourselves
        ├── Impostor            CG509    somebody else answers than whoever we look for
        └── NotPutThrough       CG510    a relay does not join us with whoever we look for

Codes are never reused. A message says what happened, with the values; `advice` says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar

E = TypeVar("E", bound="CrowdgradError")


class CrowdgradError(Exception):
    """`str(error)` is one line: code, what happened, what to do next."""

    code: ClassVar[str] = "CG000"

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        advice = f" {self.advice}" if self.advice else ""
        return f"[{self.code}] {one_line(self.message + advice)}"


class UserError(CrowdgradError):
    code = "CG100"


class JobFileError(UserError):
    code = "CG101"


class RecipeError(UserError):
    code = "CG102"


class TaskError(UserError):
    code = "CG103"


class SettingError(UserError):
    code = "CG104"


class TargetError(UserError):
    code = "CG105"


class NotAgreed(UserError):
    code = "CG106"


class MachineError(CrowdgradError):
    code = "CG200"


class PortBusy(MachineError):
    code = "CG201"


class Unreachable(MachineError):
    code = "CG202"


class DiskFull(MachineError):
    code = "CG203"


class MissingExtra(MachineError):
    code = "CG204"


HOST_MODULES = ("torch", "pyarrow", "PIL", "fsspec", "onnx", "onnxscript", "safetensors", "sklearn")
"""What only a host installs."""


def missing_module(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to tell somebody whose installation lacks a host's modules; None for others."""
    name = (error.name or "").partition(".")[0]
    if name not in HOST_MODULES:
        return None
    return MissingExtra(
        f"This needs {name}, which only a host installs.",
        advice="In a clone of the project: pip install -c constraints.txt '.[host]'.",
    )


class ChildDied(MachineError):
    code = "CG205"

    def __init__(
        self, message: str, *, advice: str = "", story: str = "", local: bool = False
    ) -> None:
        """`story`: how it ended, without anything of this machine: fit for others. `local`: it was
        not the work it did."""
        super().__init__(message, advice=advice)
        self.story = story
        self.local = local


class CannotWrite(MachineError):
    code = "CG206"


class RefusedHere(MachineError):
    code = "CG207"


class WallsMissing(MachineError):
    code = "CG208"


class RunBusy(MachineError):
    code = "CG209"


class RouterError(MachineError):
    code = "CG210"


class NoNeighbours(MachineError):
    code = "CG211"


class ProgramError(CrowdgradError):
    code = "CG300"


class CaptureError(ProgramError):
    code = "CG301"


class GateError(ProgramError):
    code = "CG302"


class ProgramRefused(ProgramError):
    code = "CG303"

    def __init__(self, message: str, *, advice: str = "", needs_bytes: int = 0) -> None:
        """`needs_bytes`: the memory it would take, where that is too much."""
        super().__init__(message, advice=advice)
        self.needs_bytes = needs_bytes


class ComputeError(ProgramError):
    code = "CG304"


class DataError(CrowdgradError):
    code = "CG400"


class DataMissing(DataError):
    code = "CG401"


class DataAltered(DataError):
    code = "CG402"


class DataMalformed(DataError):
    code = "CG403"


class BadRecords(DataError):
    code = "CG404"

    def __init__(
        self,
        message: str,
        *,
        advice: str = "",
        counts: Mapping[str, int] | None = None,
        shown: Sequence[tuple[str, int, str, str]] = (),
    ) -> None:
        """`counts`: how many of each kind. `shown`: file, line, kind and words of the first."""
        super().__init__(message, advice=advice)
        self.counts = dict(counts or {})
        self.shown = tuple(shown)


class PeerError(CrowdgradError):
    code = "CG500"


class FrameError(PeerError):
    code = "CG501"


class VersionMismatch(PeerError):
    code = "CG502"


class MessageError(PeerError):
    code = "CG503"


class UpdateRefused(PeerError):
    code = "CG504"


class ConnectionLost(PeerError):
    code = "CG505"


class TurnedAway(PeerError):
    code = "CG506"


class Replaced(PeerError):
    code = "CG507"


class NotDialled(PeerError):
    code = "CG508"


class Impostor(PeerError):
    code = "CG509"


class NotPutThrough(PeerError):
    """A relay says so, which does not speak for the host: the next time it may be otherwise."""

    code = "CG510"


def one_line(text: str) -> str:
    """Text for a screen: part of it may be a stranger's, so no breaks, no terminal commands."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def tree(root: type[E]) -> list[type[E]]:
    """A class and all that descend from it, parents before children."""
    found = [root]
    for child in root.__subclasses__():
        found.extend(tree(child))
    return found
