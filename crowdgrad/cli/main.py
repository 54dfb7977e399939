"""`crowdgrad`: the list of commands, and what happens when one fails.

A CrowdgradError ends a command with one line on standard error and exit code 1; Ctrl-C with 130.
"""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from typing import TextIO

from crowdgrad import __version__
from crowdgrad.cli import (
    bench,
    check,
    data,
    demo,
    doctor,
    host,
    hosts,
    key,
    log,
    matchmaker,
    panel,
    predict,
    recipes,
    relay,
    runs,
    server,
    settings,
    simulate,
    work,
)
from crowdgrad.cli.output import fitted
from crowdgrad.errors import CrowdgradError, missing_module
from crowdgrad.process import interrupt_on_sigterm, tie_to_stdin

COMMANDS = (
    panel,
    host,
    runs,
    work,
    hosts,
    log,
    key,
    doctor,
    matchmaker,
    relay,
    server,
    check,
    predict,
    recipes,
    data,
    demo,
    bench,
    simulate,
    settings,
)

DESCRIPTION = """\
Train a neural network on the spare time of anyone willing to help.

  crowdgrad                     open the control panel in the browser
  crowdgrad host job.toml       train your model; prints how others can join
  crowdgrad work                lend this machine to whoever needs it
  crowdgrad work HOST:PORT      lend it to one host
  crowdgrad demo                see it all happen on this machine
"""


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="crowdgrad",
        description=DESCRIPTION,
        epilog="Each command explains itself: crowdgrad COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"crowdgrad {__version__}")
    root.add_argument("--verbose", action="store_true", help="also show the log")
    commands = root.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return root


def _with_command(given: Sequence[str]) -> list[str]:
    """Without a command: the control panel, with what else is said."""
    count = next((n for n, word in enumerate(given) if word != "--verbose"), len(given))
    ours, rest = list(given[:count]), list(given[count:])
    if rest and rest[0].partition("=")[0] not in panel.OPTIONS:
        return list(given)
    return [*ours, "panel", *rest]


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to what standard error is now: a live display catches it and stays in one piece."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        return


def main(argv: Sequence[str] | None = None) -> int:
    given = _with_command(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(given)
    if "run" not in args:  # there was no command after all: `--verb`, `--`
        args = parser().parse_args([*(word for word in given if word != "--"), "panel"])
    args.as_program = argv is None
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        format="%(asctime)s %(name)s: %(message)s",
        handlers=[_CurrentStderr()],
    )
    interrupt_on_sigterm()
    if getattr(args, "tied", False):
        tie_to_stdin()
    try:
        return int(args.run(args))
    except CrowdgradError as error:
        print(fitted(f"crowdgrad: {error}", sys.stderr), file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        missing = missing_module(error)
        if missing is None:
            raise
        print(fitted(f"crowdgrad: {missing}", sys.stderr), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("crowdgrad: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone
        sys.stderr.close()
        return 1
    finally:
        # Collecting what PyTorch built at import takes the interpreter a second at its end, for
        # nothing: after Ctrl-C that second is somebody's patience.
        gc.freeze()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
