"""Looking at this machine. Nothing leaves it, and nothing stays behind."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import platform
import shutil
import socket
import ssl
import tempfile
from pathlib import Path

from crowdgrad import __version__
from crowdgrad.doctor import seen
from crowdgrad.net import lan
from crowdgrad.net.messages import PROTOCOL

LENDING = (
    "numpy", "onnxruntime", "msgspec", "cryptography", "websockets", "fastapi", "uvicorn", "rich",
    "mnemonic", "segno", "zeroconf", "ifaddr",
)  # fmt: skip
HOSTING = ("torch", "onnx", "onnxscript", "scikit-learn", "safetensors", "miniupnpc")
"""As in pyproject.toml: what every install has, and what an install for hosts adds to it."""
INSTALL = (
    "In a clone of the project: pip install -c constraints.txt '.[host]', or '.' to lend only."
)
TRIED_BYTES = 4096
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses nobody has: to find out, without sending anything, by which of ours we leave."""


def versions() -> seen.Versions:
    return seen.Versions(
        crowdgrad=__version__,
        protocol=(PROTOCOL[0], PROTOCOL[1]),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        tls=ssl.OPENSSL_VERSION,
        has_tls13=ssl.HAS_TLSv1_3,
        lending={name: _version(name) for name in LENDING},
        hosting={name: _version(name) for name in HOSTING},
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def disk(purpose: str, folder: Path) -> seen.Disk:
    """Of a folder, or of where it would be made."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        free = shutil.disk_usage(there).free
        with tempfile.TemporaryFile(dir=there, prefix=".crowdgrad-") as file:
            file.write(bytes(TRIED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return seen.Disk(purpose=purpose, path=str(folder), free_bytes=0, trouble=why)
    return seen.Disk(purpose=purpose, path=str(folder), free_bytes=free)


def can_be_had(port: int) -> tuple[bool, str]:
    """Whether we could listen there; if not, why, or '' where somebody listens already."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("", port))
            listening.listen(1)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        return False, "" if taken else (error.strerror or str(error)).lower()
    return True, ""


def local_addresses(*, here: lan.Places = lan.networks) -> tuple[str, ...]:
    """Those by which this machine would go out; where no way leads out, those on its networks."""
    found = []
    for family, elsewhere in ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as towards:
                towards.connect((elsewhere, 9))
                found.append(str(towards.getsockname()[0]))
        except OSError:
            continue  # there is no way out of that kind
    if not found:
        places = [place for place in here() if not place.address.startswith("fe80:")]
        found = [place.address for place in sorted(places, key=lambda place: place.version)]
    return tuple(found)
