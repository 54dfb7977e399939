"""What the commands share: JSON results, lines that fit, and arguments that several take."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import TextIO

from crowdgrad.files import disk_errors, write_whole

JSON_HELP = "write the result as JSON; - for standard output"


def write_json(target: str | None, content: object, *, private: bool = False) -> None:
    """Write JSON to a file, all at once, to a pipe or device, or to standard output (`-`).

    Raises CannotWrite.

    `private`: for its owner's eyes only.
    """
    if target is None:
        return
    text = json.dumps(content, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with disk_errors(Path(target), "Choose another file with --json."):
        write_whole(Path(target), text.encode(), private=private)


def fitted(text: str, stream: TextIO, indent: str = "") -> str:
    """A line for `stream`: broken between words where that is a terminal, else as it is."""
    if not stream.isatty():
        return text
    return textwrap.fill(
        text,
        shutil.get_terminal_size().columns,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,  # a path or a command is to be copied whole
    )


def whole(text: str) -> int:
    """An argument that counts something."""
    if not text.isascii() or not text.isdigit():
        raise ArgumentTypeError(f"{text!r} is not a whole number ≥ 0")
    return int(text)


def add_common(parser: ArgumentParser) -> None:
    """Arguments of every command that stays: where its files are and whom it ends with."""
    parser.add_argument(
        "--home", metavar="DIR", help="where keys and data are kept (see `crowdgrad settings`)"
    )
    add_tied(parser)


def add_tied(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--tied",
        action="store_true",
        help="end when standard input ends, so that it never outlives who started it",
    )


def add_listening(parser: ArgumentParser, port: int) -> None:
    """Arguments of a command that others connect to."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    parser.add_argument(
        "--port", type=int, default=port, help=f"port to listen on; 0 takes any free one ({port})"
    )
