"""What the commands share: JSON results, and arguments that several of them take."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

from crowdgrad.errors import SettingError

JSON_HELP = "write the result as JSON; - for standard output"


def write_json(target: str | None, content: object) -> None:
    """Write JSON to a file, all at once, or to standard output (`-`). Raises SettingError."""
    if target is None:
        return
    text = json.dumps(content, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    file = Path(target)
    try:
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=".crowdgrad-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(draft, file)
    except OSError as error:
        raise SettingError(
            f"Cannot write {target}: {error.strerror}.", advice="Choose another file with --json."
        ) from None


def add_common(parser: ArgumentParser) -> None:
    """Arguments of every command that stays: where its files are and whom it ends with."""
    parser.add_argument(
        "--home", metavar="DIR", help="where keys and data are kept (see `crowdgrad settings`)"
    )
    parser.add_argument(
        "--tied",
        action="store_true",
        help="end when standard input ends, so that it never outlives who started it",
    )
