"""Landlock: the kernel's own list of what this process may open. Everything it handles is denied,
and reading is given back for the folders the libraries lie in.

Nothing may be executed or written anywhere; from ABI 4 no TCP, from 6 no signal and no abstract
socket leaves. The home folder, and whatever else stands on `sys.path`, is never given.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
from collections.abc import Iterable, Sequence

from crowdgrad.volunteer.sandbox.kernel import Kernel, step
from crowdgrad.volunteer.sandbox.walls import Step

_VERSION = 1  # flag of landlock_create_ruleset: only say which ABI there is
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 5: 1 << 16}
"""From this ABI on, every right below this bit can be handled."""
_TCP_RIGHTS, _SCOPES = 0b11, 0b11
_TCP_FROM, _SCOPES_FROM = 4, 6

SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store",
    "/etc/ld.so.cache", "/proc/cpuinfo", "/proc/meminfo",
    "/sys/devices/system/cpu", "/sys/devices/system/node",
)  # fmt: skip
"""Shared libraries, and how many processors there are and of which kind."""
LISTED = ("/sys/bus/pci/devices", "/sys/class/drm", "/sys/class/accel")
"""The runtime looks here for devices and complains if it may not; the devices stay out of reach."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def libraries() -> tuple[str, ...]:
    """Where this interpreter, its packages and crowdgrad itself are read from."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    packages = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    places = [
        os.path.dirname(os.__file__),
        os.path.join(sys.base_prefix, "lib"),
        *packages,
        package,
    ]
    return tuple(dict.fromkeys([*places, *SYSTEM]))


def enter(kernel: Kernel, readable: Sequence[str] = ()) -> Step:
    """Reading beneath `libraries()` and `readable` is all that is left."""
    return step("landlock", lambda: _restrict(kernel, _given([*libraries(), *readable])))


def _given(paths: Iterable[str]) -> list[str]:
    """Without those that hold the home folder: giving them would give everything."""
    home = os.path.realpath(os.path.expanduser("~"))
    inside = os.path.join(home, "")
    return [
        path for path in paths if not inside.startswith(os.path.join(os.path.realpath(path), ""))
    ]


def _restrict(kernel: Kernel, paths: Iterable[str]) -> str:
    abi = kernel.call("landlock_create_ruleset", None, 0, _VERSION)
    ruleset = _Ruleset(
        files=_FILE_RIGHTS[max(known for known in _FILE_RIGHTS if known <= abi)] - 1,
        net=_TCP_RIGHTS if abi >= _TCP_FROM else 0,
        scopes=_SCOPES if abi >= _SCOPES_FROM else 0,
    )
    size = 8 if abi < _TCP_FROM else 16 if abi < _SCOPES_FROM else 24
    handle = kernel.call("landlock_create_ruleset", ctypes.byref(ruleset), size, 0)
    try:
        for path in paths:
            _allow(kernel, handle, path, _READ_FILE | _READ_DIR)
        for path in LISTED:
            _allow(kernel, handle, path, _READ_DIR)
        kernel.call("landlock_restrict_self", handle, 0)
    finally:
        os.close(handle)
    return f"ABI {abi}"


def _allow(kernel: Kernel, ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this system, so nothing needs it
    try:
        beneath = _Beneath(rights=rights if os.path.isdir(path) else _READ_FILE, parent=place)
        kernel.call("landlock_add_rule", ruleset, _PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(place)
