"""`crowdgrad recipes`: how volunteers can learn together, and which way to choose when."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from crowdgrad.cli.output import JSON_HELP, write_json
from crowdgrad.errors import RecipeError

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.recipes.base import Recipe
    from crowdgrad.recipes.describe import FieldInfo

TEXT = """\
How volunteers can learn together. A recipe is chosen in the job file,
[recipe] name = "…", or in Python, recipe=cg.Downpour(…). With NAME, its
hyperparameters are listed.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "recipes",
        help="list the training algorithms and when to use which",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this one's hyperparameters")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from crowdgrad.recipes import RECIPES

    if args.name is not None and args.name not in RECIPES:
        raise RecipeError(
            f"There is no recipe {args.name!r}.", advice=f"There are: {', '.join(RECIPES)}."
        )
    chosen = [kind for name, kind in RECIPES.items() if args.name in (None, name)]
    write_json(args.json, {kind.name: _as_json(kind) for kind in chosen})
    if args.json == "-":
        return 0
    console = Console(highlight=False)
    if args.name is None:
        _list(console, chosen)
    else:
        _show(console, chosen[0])
    return 0


def _list(console: Console, kinds: list[type[Recipe]]) -> None:
    from rich.padding import Padding

    from crowdgrad.recipes import DEFAULT

    for kind in kinds:
        mark = " (the default)" if kind.name == DEFAULT else ""
        console.print(f"[bold]{kind.name}[/bold]{mark}")
        console.print(Padding(f"{kind.sentence}\nWhen: {kind.when}", (0, 0, 0, 2)))
        console.print(f"  Python: cg.{kind.__name__}(…)\n")
    console.print("crowdgrad recipes NAME lists one's hyperparameters.")


def _show(console: Console, kind: type[Recipe]) -> None:
    from crowdgrad.recipes.describe import describe

    console.print(f"[bold]{kind.name}[/bold]: {kind.sentence}\nWhen: {kind.when}\n")
    everything = describe(kind)
    plain = [info for info in everything if info.part is None]
    parts = [info for info in everything if info.part is not None]
    _table(console, plain)
    for info in parts:
        assert info.part is not None
        console.print(f"\n[bold]{info.name}[/bold]: {info.what}")
        _table(console, describe(info.part))
    ruled = next((info.name for info in plain if info.choices and "adam" in info.choices), None)
    console.print(f'\nIn a job file:\n\n  \\[recipe]\n  name = "{kind.name}"')
    for info in [info for info in plain if info.name != ruled][:5]:
        console.print(f"  {info.name} = {_toml(info)}")
    if ruled:
        usual = next(info.default_text for info in plain if info.name == ruled)
        console.print(f'  {ruled} = "{usual}"')
        console.print(f'  # {ruled} = {{name = "adam", beta1 = 0.9}}, with an lr of about 0.001')
    console.print('  schedule = {shape = "cosine", warmup_epochs = 1}')


def _table(console: Console, infos: list[FieldInfo]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for info in infos:
        table.add_row(info.name, info.default_text, info.what.replace("`", ""))
    console.print(table)


def _toml(info: FieldInfo) -> str:
    return f'"{info.default_text}"' if info.choices else info.default_text


def _as_json(kind: type[Recipe]) -> dict[str, Any]:
    from crowdgrad.recipes import DEFAULT
    from crowdgrad.recipes.describe import describe

    return {
        "sentence": kind.sentence,
        "when": kind.when,
        "default": kind.name == DEFAULT,
        "python": f"cg.{kind.__name__}",
        "fields": {info.name: _field(info) for info in describe(kind)},
    }


def _field(info: FieldInfo) -> dict[str, Any]:
    from crowdgrad.recipes.describe import describe

    told: dict[str, Any] = {"what": info.what}
    if info.part is not None:
        return told | {"fields": {inner.name: _field(inner) for inner in describe(info.part)}}
    if info.choices:
        told["choices"] = list(info.choices)
    return told | {"default": getattr(info.default, "name", info.default)}
