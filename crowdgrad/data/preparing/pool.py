"""Steps of a preparation on several cores: processes that take one after the other.

A worker hears on its standard input which step to take next and answers on its standard output.
When its starter dies the input ends, and so does the worker. Results come in any order.
"""

from __future__ import annotations

import contextlib
import os
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from crowdgrad.data.preparing.stages import RESULTS, Work
from crowdgrad.errors import ChildDied, CrowdgradError, tree

_LENGTH = struct.Struct("<I")
SPARING = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
"""A worker's libraries: Arrow's own pool sets a gigabyte aside, which a limit on memory refuses;
numpy's a buffer for every core."""
FEW = 4
"""Steps for which no process is started."""


class Ask(msgspec.Struct, array_like=True):
    step: str
    number: int


class Answer(msgspec.Struct, array_like=True):
    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    code: str = ""
    message: str = ""
    advice: str = ""


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


WORKER_BYTES = 100 << 20
"""What one worker takes at most, and what is left to the process that starts them."""
LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/proc/meminfo"))


def jobs_within(cores: int, memory_bytes: int | None) -> int:
    """As many as there are cores, unless memory is short."""
    if memory_bytes is None:
        return cores
    return max(1, min(cores, memory_bytes // WORKER_BYTES - 1))


def usual_jobs() -> int:
    return jobs_within(cores(), free_memory())


def free_memory() -> int | None:
    """Bytes that this system, or the group we are in, still has; None: nobody says."""
    found = []
    limit, info = (_text(path) for path in LIMIT_FILES)
    if limit.strip().isdigit():
        found.append(int(limit))
    free = [line.split()[1] for line in info.splitlines() if line.startswith("MemAvailable:")]
    found += [int(kibibytes) * 1024 for kibibytes in free]
    return min(found, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class Pool:
    def __init__(self, work: Work, jobs: int) -> None:
        self._work = work
        self._jobs = jobs
        self._workers: list[_Worker] = []

    def start(self) -> None:
        """All workers at once: they take a moment to be ready."""
        while 1 < self._jobs != len(self._workers):
            self._workers.append(_Worker(self._work))

    def run(self, step: str, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Each number with its result, as they come. Raises what a step raises, ChildDied."""
        if self._jobs == 1 or len(numbers) <= FEW:
            take = self._work.step(step)
            for number in numbers:
                yield number, take(number)
            return
        while len(self._workers) < min(self._jobs, len(numbers)):
            self._workers.append(_Worker(self._work))
        yield from self._shared(step, numbers)

    def _shared(self, step: str, numbers: Sequence[int]) -> Iterator[tuple[int, Any]]:
        left, results = iter(numbers), queue.SimpleQueue[tuple[int, Any] | BaseException]()
        lock = threading.Lock()

        def serve(worker: _Worker) -> None:
            while True:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                try:
                    results.put((number, worker.take(step, number)))
                except BaseException as error:
                    results.put(error)
                    return

        threads = [
            threading.Thread(target=serve, args=(worker,), daemon=True) for worker in self._workers
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in numbers:
                found = results.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        except BaseException:
            self.close()
            raise
        finally:
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """End the workers now; what they were at is taken again another time."""
        for worker in self._workers:
            worker.end()
        self._workers = []
        self._work.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    def __init__(self, work: Work) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crowdgrad.data.preparing.worker", work.folder, work.out],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the starter alone
            env={**SPARING, **os.environ},
        )

    def take(self, step: str, number: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, Ask(step, number))
            answer = receive(self._process.stdout, Answer)
        except (BrokenPipeError, ValueError, msgspec.DecodeError):  # or died in mid-sentence
            answer = None
        if answer is None:
            code = self._process.wait()
            raise ChildDied(
                f"A process that prepared the data died (exit code {code}).",
                advice="Start again: what is done is kept. Where memory is short, try --jobs 1.",
            )
        if answer.code:
            kind = next((k for k in tree(CrowdgradError) if k.code == answer.code), CrowdgradError)
            raise kind(answer.message, advice=answer.advice)
        return msgspec.msgpack.decode(answer.result, type=RESULTS[step])

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def send(pipe: BinaryIO | Any, message: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def receive(pipe: BinaryIO | Any, kind: Any) -> Any:
    """None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    data = pipe.read(_LENGTH.unpack(head)[0])
    return msgspec.msgpack.decode(data, type=kind)


def work_for(hear: BinaryIO, say: BinaryIO, folder: Path, out: Path) -> None:
    """A worker's life."""
    work = Work(folder, out)
    while (ask := receive(hear, Ask)) is not None:
        try:
            result = msgspec.msgpack.encode(work.step(ask.step)(ask.number))
            answer = Answer(result=msgspec.Raw(result))
        except CrowdgradError as error:
            answer = Answer(code=error.code, message=error.message, advice=error.advice)
        except MemoryError:
            answer = Answer(
                code="CG200",
                message="There is not enough memory to prepare the data.",
                advice="Try --jobs 1.",
            )
        send(say, answer)
