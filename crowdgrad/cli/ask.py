"""Questions to the person at the terminal.

A volunteer is asked while it is already connected, so the loop goes on meanwhile: its heartbeats
must not wait for somebody who is reading. Only a line typed after the question is an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.volunteer.consent import Answer, Ask, Request

PATIENCE_S = 600.0
"""How long a question waits: meanwhile a place in the job is taken."""


def can_ask(console: Console) -> bool:
    """Whether somebody sees what we write and can answer: not in the background, not in a pipe."""
    if not (console.is_terminal and sys.stdin is not None and sys.stdin.isatty()):
        return False
    try:
        return os.getpgrp() == os.tcgetpgrp(sys.stdin.fileno())
    except (AttributeError, OSError):  # no such thing on this system, or no terminal of our own
        return True


def whether_to_help(console: Console, pause: Callable[[], contextlib.ExitStack]) -> Ask:
    """The question before the first unit. `pause` takes a live display off the screen meanwhile."""
    from crowdgrad.volunteer.consent import WIDTH, lines

    async def ask(request: Request) -> Answer:
        with pause():
            for line in lines(request, min(WIDTH, console.width)):
                console.print(line, highlight=False, markup=False, soft_wrap=True)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await _answer(console, remember=bool(request.host))
            except TimeoutError:
                console.print("\nNobody answered.")
                return "no"
            except asyncio.CancelledError:  # Ctrl-C, or the host has gone
                console.print()
                raise

    return ask


async def _answer(console: Console, *, remember: bool) -> Answer:
    if not remember:
        return await _one_of(console, "Help this host? [y]es this time, [n]o: ", ("yes", "no"))
    question = "Help this host? [y]es this time, [a]lways for this host, [n]o: "
    return await _one_of(console, question, ("yes", "always", "no"))


def yes_or_no(console: Console, question: str) -> bool:
    """For commands that do nothing else meanwhile. Raises KeyboardInterrupt."""
    from crowdgrad.process import run_async

    # Not input(): a Ctrl-C that comes just before it reads is not heard before the next line.
    answer = run_async(_one_of(console, f"{question} [y]es, [n]o: ", ("yes", "no")))
    return answer == "yes"


async def _one_of(console: Console, question: str, answers: tuple[Answer, ...]) -> Answer:
    """One of the answers, typed whole or by its first letter; the end of input is no."""
    _forget_typed()
    while True:
        console.print(question, end="", highlight=False, markup=False)
        line = await read_line()
        if line is None:
            console.print()
            return "no"
        for answer in answers:
            if line.lower() in (answer, answer[0]):
                return answer


async def read_line(handle: int = 0) -> str | None:
    """A line from a terminal, while the loop goes on; None at its end."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        if not typed.done():
            try:
                typed.set_result(os.read(handle, 4096))
            except OSError:  # the terminal has gone
                typed.set_result(b"")

    loop.add_reader(handle, take)
    try:
        line = await typed
    finally:
        loop.remove_reader(handle)
    return line.decode(errors="replace").strip() if line else None


def _forget_typed() -> None:
    """What was typed before the question is no answer to it."""
    with contextlib.suppress(ImportError, OSError):
        import termios

        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
