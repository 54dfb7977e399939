"""A trainer that has been taken over: within its walls it is honest until its first unit, then does
one forbidden thing. Run in place of `crowdgrad.volunteer.start_trainer`.

Which thing, and what it needs to know, lies in the second slot of the arena as JSON; so does what
came of it, since nothing else leads out of here. It misbehaves as often as it is told to.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from crowdgrad.volunteer.sandbox.enter import enter

WALLED = sys.argv[2] == "on"
if WALLED:
    enter()

import ctypes  # noqa: E402
import mmap  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from crowdgrad.volunteer import talk, trainer  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
Order = dict[str, Any]


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read_passwords(order: Order) -> object:
    return Path("/etc/passwd").read_text()


def read_key(order: Order) -> object:
    return Path(order["key"]).read_bytes()


def read_own_libraries(order: Order) -> object:
    return Path(os.__file__).read_text()  # allowed while loading, not any more


def list_files(order: Order) -> object:
    return os.listdir("/")


def read_agents_memory(order: Order) -> object:
    return Path(f"/proc/{os.getppid()}/mem").open("rb").read(1)


def read_agents_environment(order: Order) -> object:
    return Path(f"/proc/{os.getppid()}/environ").read_bytes()


def connect_tcp(order: Order) -> object:
    with socket.socket() as talking:
        return talking.connect(("127.0.0.1", order["port"]))


def send_udp(order: Order) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as talking:
        return talking.sendto(b"out", ("127.0.0.1", order["port"]))


def connect_unix(order: Order) -> object:
    with socket.socket(socket.AF_UNIX) as talking:
        return talking.connect(order["unix"])


def fork(order: Order) -> object:
    if os.fork() == 0:
        os._exit(0)
    return True


def execute(order: Order) -> object:
    os.execv("/bin/true", ["true"])


def execute_from_memory(order: Order) -> object:
    file = checked(LIBC.memfd_create(b"x", 0))
    os.write(file, Path("/bin/true").read_bytes())
    return checked(LIBC.fexecve(file, None, None))


def write_here(order: Order) -> object:
    return Path("left-behind").write_text("x")


def write_in_tmp(order: Order) -> object:
    return Path(order["folder"], "left-behind").write_text("x")


def cut_the_arena(order: Order) -> object:
    return os.ftruncate(int(sys.argv[1]), 0)


def allocate(order: Order) -> object:
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return len([mmap.mmap(-1, 1 << 30, flags=private) for _ in range(100)])


def allocate_for_python(order: Order) -> object:
    return len(b"x" * (100 << 30))


def allocate_bit_by_bit(order: Order) -> object:
    kept = []
    while True:
        kept.append(b"x" * (8 << 20))


def raise_own_limits(order: Order) -> object:
    import resource

    return resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)


def raise_own_priority(order: Order) -> object:
    return checked(LIBC.setpriority(0, 0, -10))


def attach_to_agent(order: Order) -> object:
    return checked(LIBC.ptrace(16, os.getppid(), 0, 0))


def kill_agent(order: Order) -> object:
    os.kill(os.getppid(), signal.SIGCONT)
    return True


def make_code(order: Order) -> object:
    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def spin(order: Order) -> object:
    while True:
        continue


def sleep(order: Order) -> object:
    time.sleep(3600)
    return None


def spin_while_idle(order: Order) -> object:
    WAITING.set()  # it was started before that was forbidden
    return "honest"


def flood_the_pipe(order: Order) -> object:
    while True:
        os.write(order["say"], bytes(65536))


def flood_the_errors(order: Order) -> object:
    for _ in range(2000):
        os.write(2, b"\x1b[2Jx" * 1000)
    return "honest"


def flood_the_errors_without_end(order: Order) -> object:
    while True:
        os.write(2, b"\x1b[2Jx" * 1000)


def talk_nonsense_at_length(order: Order) -> object:
    body = talk.msgspec.msgpack.encode({"type": "\x1b[2Jx" * 10_000})
    os.write(order["say"], talk.LENGTH.pack(len(body)) + body)
    time.sleep(3600)
    return None


def talk_nonsense(order: Order) -> object:
    os.write(order["say"], talk.LENGTH.pack(5) + b"\xc1\xff\xff\xff\xff")
    time.sleep(3600)
    return None


def name_a_huge_length(order: Order) -> object:
    os.write(order["say"], talk.LENGTH.pack(0xFFFFFFFF))
    time.sleep(3600)
    return None


def answer_for_another(order: Order) -> object:
    return {"unit": 12345}


def count_too_many_samples(order: Order) -> object:
    return {"samples": 1_000_000}


def claim_more_time(order: Order) -> object:
    return {"compute_s": 1e6}


def invent_metrics(order: Order) -> object:
    return {"metrics": {"credit": 1e9}}


def answer_twice(order: Order) -> object:
    return "twice"


def crash(order: Order) -> object:
    return ctypes.string_at(0)


def abort(order: Order) -> object:
    os.abort()


def leave(order: Order) -> object:
    os._exit(0)


class Taken(trainer.Trainer):
    def compute(self, ask: talk.Compute) -> talk.Computed:
        place = self._setup.plan.slots[1].state.of(self._memory)
        order: Order = json.loads(bytes(place).rstrip(b"\0"))
        if order["times"] == 0:
            return super().compute(ask)
        order["times"] -= 1
        _leave(place, order)
        try:
            came = globals()[order["act"]]({**order, "say": SAY})
        except (OSError, MemoryError, ValueError, AttributeError) as error:
            order["came"] = f"stopped: {type(error).__name__}"
            _leave(place, order)
            raise RuntimeError(f"{order['act']}: {type(error).__name__} {error}") from error
        order["came"] = "BREACH"
        if came == "honest" or came == "twice" or isinstance(came, dict):
            order["came"] = "lied"
        _leave(place, order)
        honest = super().compute(ask)
        if came == "twice":
            os.write(SAY, talk.encode(honest))
        return talk.msgspec.structs.replace(honest, **came) if isinstance(came, dict) else honest


def _leave(place: memoryview, order: Order) -> None:
    text = json.dumps(order).encode()
    place[:] = text + bytes(len(place) - len(text))


def _spin_when_told() -> None:
    WAITING.wait()
    spin({})


WAITING = threading.Event()
threading.Thread(target=_spin_when_told, daemon=True).start()
SAY = os.dup(1)
trainer.Trainer = Taken  # type: ignore[misc]
if __name__ == "__main__":
    trainer.main(int(sys.argv[1]), walled=WALLED)
