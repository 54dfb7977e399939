"""Whether a job's data may be published: its owner is asked, once for each data set."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from crowdgrad.cli.host_arguments import LOOPBACK

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.host.options import Options
    from crowdgrad.host.publishing import Material

ALONE = "Only this machine trains: nobody has agreed to publish the data."


def is_open(options: Options) -> bool:
    from crowdgrad.host.publishing import open_to_others

    return open_to_others(options.host, options.advertise, options.matchmaker, options.relays)


def agree_to_publish(
    args: argparse.Namespace, options: Options, material: Material, home: Path, console: Console
) -> Options:
    """Once for each data set that others can reach. Raises NotAgreed, where others were asked for;
    otherwise this machine trains alone."""
    from crowdgrad.cli.ask import can_ask, yes_or_no
    from crowdgrad.errors import NotAgreed
    from crowdgrad.host.publishing import Published, warning

    if args.yes or not is_open(options) or material.name in Published(home):
        return options
    asked_for = args.host or options.advertise or options.matchmaker or options.relays
    if not asked_for and (not can_ask(console) or args.tied):
        console.print(f"{ALONE} With --yes those on your network can help.", highlight=False)
        return dataclasses.replace(options, host=LOOPBACK)
    for line in warning(material):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not can_ask(console) or args.tied:
        raise NotAgreed(
            f"Nobody has agreed to publish “{material.title}” yet.",
            advice="Say --yes if every volunteer may read and keep this data.",
        )
    if not yes_or_no(console, "Publish it?"):
        if not asked_for:
            console.print(ALONE, highlight=False)
            return dataclasses.replace(options, host=LOOPBACK)
        raise NotAgreed(f"“{material.title}” is not published.", advice="Train here: leave out "
                        "--matchmaker, --host, --advertise and --relay.")  # fmt: skip
    note_agreement(material, home, console)
    return options


def note_agreement(material: Material, home: Path, console: Console) -> None:
    from crowdgrad.errors import CrowdgradError
    from crowdgrad.host.publishing import Published

    try:
        Published(home).add(material.name, material.title)
    except CrowdgradError as error:  # then the question comes again
        console.print(str(error), highlight=False, markup=False)
