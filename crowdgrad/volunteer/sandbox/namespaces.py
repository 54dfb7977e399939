"""A world of its own: a network without any device, and no rights left over anybody.

The namespaces are made in one call, while there is only one thread. Where the kernel lets nobody
but root have them, root still gets the network's. All capabilities are dropped afterwards: those a
new user namespace came with, and root's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

from crowdgrad.volunteer.sandbox.kernel import Kernel, step
from crowdgrad.volunteer.sandbox.walls import Step

_NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_NET = 0x04000000, 0x08000000, 0x10000000, 0x40000000
_APART = _NEW_NET | _NEW_IPC | _NEW_UTS
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_CLEAR = 1, 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64
_JOIN_SESSION_KEYRING = 1
USER = "user"
"""In a step's note: whether the process has a user namespace of its own."""


def separate(kernel: Kernel) -> Step:
    return step("namespaces", lambda: _separate(kernel))


def drop_capabilities(kernel: Kernel) -> Step:
    return step("no capabilities", lambda: _drop(kernel))


def end_with_parent(kernel: Kernel, parent: int) -> Step:
    """Asked for last: changes of rights take it away. `parent` is whom we started under."""
    return step("ends with its agent", lambda: _tie(kernel, parent))


def _separate(kernel: Kernel) -> str:
    try:
        kernel.call("unshare", _NEW_USER | _APART)
        kinds = f"{USER}, network, ipc"
    except OSError as error:
        if os.name != "posix" or os.geteuid() != 0:
            raise
        first = error
        try:
            kernel.call("unshare", _APART)
        except OSError:
            raise first from None
        kinds = "network, ipc"
    with contextlib.suppress(OSError):  # keys are out of reach by seccomp as well
        kernel.call("keyctl", _JOIN_SESSION_KEYRING, None)
    return kinds


def _drop(kernel: Kernel) -> None:
    for capability in range(_CAPABILITIES):
        try:
            kernel.call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:  # past the last there is, or none to drop
            break
    with contextlib.suppress(OSError):  # older than Linux 4.3
        kernel.call("prctl", _PR_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    kernel.call("capset", ctypes.byref(head), ctypes.byref(nothing))


def _tie(kernel: Kernel, parent: int) -> None:
    kernel.call("prctl", _PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died while we asked
        os._exit(1)
