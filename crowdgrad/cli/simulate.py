"""`crowdgrad simulate`: a whole job in a virtual world, and everything that went wrong in it."""

from __future__ import annotations

import argparse

from crowdgrad.errors import TargetError

TEXT = """\
Live through a whole job in a virtual world: host, volunteers and matchmaker
under a made-up clock, with a made-up network and disk, and with misfortunes
that a seed chooses. The same seed gives exactly the same life. It ends with
exit code 1 if something happened that must never be.

  crowdgrad simulate storm --seed 7              one life of every recipe
  crowdgrad simulate storm --seed 7 --seeds 100  a hundred lives of each
  crowdgrad simulate storm --recipe chains --seed 2 --trace
                                                 one life, line by line
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="a whole job in a virtual world, with misfortunes",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", choices=("storm",), help="what happens")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which life (default 0)")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many, from that on")
    parser.add_argument("--recipe", metavar="NAME", help="of the simulator's; default: each")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from crowdgrad.simulator.storm import NAMES, storm

    if args.recipe is not None and args.recipe not in NAMES:
        raise TargetError(
            f"The simulator has no recipe {args.recipe!r}.", advice=f"It has: {', '.join(NAMES)}."
        )
    if args.seeds < 1:
        raise TargetError(f"{args.seeds} lives show nothing.", advice="Give --seeds 1 or more.")
    wrong = 0
    for recipe in NAMES if args.recipe is None else (args.recipe,):
        for seed in range(args.seed, args.seed + args.seeds):
            told = storm(recipe, seed, trace=args.trace)
            if args.trace or told.violation is not None:
                print("\n".join(told.lines))
            wrong += told.violation is not None
            found = f"VIOLATION {told.violation}" if told.violation else "all is well"
            print(f"{recipe} {seed}: {found}, after {told.virtual_s:.0f} virtual seconds")
            if told.violation is not None and not args.trace:
                print(f"To see it again: {told.replay}")
    recipes = len(NAMES) if args.recipe is None else 1
    if recipes * args.seeds > 1:
        print(f"{recipes * args.seeds} lives, {wrong} of them wrong.")
    return 1 if wrong else 0
