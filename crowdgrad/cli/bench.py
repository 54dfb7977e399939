"""`crowdgrad bench`: one claim, measured. The scripts are in the folder `benchmarks` of a clone."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import crowdgrad
from crowdgrad.errors import TargetError

TEXT = """\
Measure one claim and print its figures, e.g. `crowdgrad bench join`. Needs a
clone of the project: the scripts are in its folder `benchmarks`, one a claim.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure one claim",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="which claim: " + (", ".join(names()) or "see benchmarks/"))
    parser.add_argument("--quick", action="store_true", help="the same figures, less exactly")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - for stdout")
    parser.set_defaults(run=run)


def folder() -> Path:
    return Path(crowdgrad.__file__).parents[1] / "benchmarks"


def names() -> list[str]:
    """The claims: every script but those that begin with an underscore, which others share."""
    return sorted(file.stem for file in folder().glob("[!_]*.py"))


def run(args: argparse.Namespace) -> int:
    script = folder() / f"{args.name}.py"
    if args.name not in names():
        raise TargetError(
            f"There is no benchmark {args.name!r} here.",
            advice=f"There is: {', '.join(names())}." if names() else "Run it in a clone.",
        )
    command = [sys.executable, str(script)]
    command += ["--quick"] if args.quick else []
    command += ["--json", args.json] if args.json else []
    # A benchmark is its own process: nothing this command imported weighs on what it measures.
    return subprocess.run(command, check=False).returncode
