"""`crowdgrad predict`: ask a finished run's model."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowdgrad.cli.output import JSON_HELP, whole, write_json
from crowdgrad.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Console

    from crowdgrad.host.prediction import Answers, Model

TEXT = """\
Ask the model of a finished run. RUN is a run's folder, or its id in runs/.
FILE holds the records as the data set stores them (bytes of pixels stay
bytes): an .npy file, an .npz file with an array for each input, or a .csv file
with a record on each line. PyTorch is not needed.

  crowdgrad predict RUN --describe               what it takes
  crowdgrad predict RUN digits.npy               the first answers on the screen
  crowdgrad predict RUN digits.npy --out a.csv   all of them (.csv or .npz)
"""
SHOWN = 10


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "predict",
        help="ask the model of a finished run",
        description=TEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_name", metavar="RUN", help="a run's folder, or its id")
    parser.add_argument("file", metavar="FILE", help=".npy, .npz or .csv")
    parser.add_argument("--describe", action=_Describe, help="say what the model takes; no FILE")
    parser.add_argument("--out", metavar="FILE", help="write all answers: .npz or .csv")
    parser.add_argument("--seed", type=_seed, default=0, help="of what the model draws (0)")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="where runs are (runs)")
    parser.add_argument("--json", metavar="FILE", help=JSON_HELP)
    parser.set_defaults(run=run)


def _seed(text: str) -> int:
    seed = whole(text)
    if seed >= 1 << 64:
        raise argparse.ArgumentTypeError(f"{text} is not below 2^64")
    return seed


class _Describe(argparse.Action):
    """A switch with which FILE may be left out.

    Were FILE optional for good, argparse would not take it behind another option.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **others: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=False, **others)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace,
                 values: object, option_string: str | None = None) -> None:  # fmt: skip
        namespace.describe = True
        for action in parser._actions:
            action.required = action.required and action.dest != "file"


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from crowdgrad.host.earlier import find_run, read_run
    from crowdgrad.host.prediction import Model

    model = Model(read_run(find_run(args.run_name, Path(args.runs))))
    console = Console(stderr=args.json == "-", highlight=False)
    if args.describe:
        told = _description(model)
        write_json(args.json, told)
        if args.json != "-":
            _show_description(console, told)
        return 0
    if args.out is not None and Path(args.out).suffix not in (".npz", ".csv"):
        raise TargetError(f"--out is {args.out}.", advice="Name it .npz or .csv.")
    answers = _ask(args, model)
    if args.out is not None:
        _write(Path(args.out), answers)
    write_json(args.json, _as_json(model, answers))
    if args.json != "-":
        _show(console, answers, args.out)
    return 0


def _ask(args: argparse.Namespace, model: Model) -> Answers:
    from rich.console import Console
    from rich.progress import Progress

    from crowdgrad.host.samples import read_records

    columns = read_records(Path(args.file), model.inputs)
    total = len(columns[0])
    console = Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("Asking the model", total=total)
        return model.answer(
            columns, seed=args.seed, progress=lambda done: bar.update(task, completed=done)
        )


def _description(model: Model) -> dict[str, object]:
    return {
        "run": model.run.id,
        "title": model.run.title,
        "inputs": [
            {"name": one.name, "dtype": one.dtype.name, "shape": list(one.shape)}
            for one in model.inputs
        ],
        "outputs": len(model.outputs),
        "classes": model.classes,
        "draws": model.draws,
    }


def _show_description(console: Console, told: dict[str, object]) -> None:
    console.print(f"{told['title']} ({told['run']})", markup=False)
    console.print("It takes, for each record:")
    inputs = told["inputs"]
    assert isinstance(inputs, list)
    for one in inputs:
        sizes = " × ".join(map(str, one["shape"])) or "one number"
        console.print(f"  {one['name']}: {one['dtype']}, {sizes}", markup=False)
    gives = f"one of {told['classes']} classes" if told["classes"] else (
        "a tensor" if told["outputs"] == 1 else f"{told['outputs']} tensors"
    )  # fmt: skip
    console.print(f"It gives {gives}.")
    if told["draws"]:
        console.print("It draws random numbers: --seed chooses which.")


def _show(console: Console, answers: Answers, out: str | None) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    rows = _rows(answers)
    for number, heading in enumerate(next(rows)):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
        if number == 7:  # more would not fit a screen; --out has them all
            break
    total = len(answers.outputs[0])
    for _, row in zip(range(SHOWN), rows, strict=False):
        table.add_row(*(_spell(cell) for cell in row[:8]))
    console.print(table)
    rest = f"{total - SHOWN:,} more. " if total > SHOWN else ""
    where = f"All {total:,} are in {out}." if out else "--out FILE writes all." if rest else ""
    if rest or where:
        console.print(f"{rest}{where}".strip(), soft_wrap=True, markup=False)


def _spell(cell: object) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:.4f}" if abs(cell) < 1000 else f"{cell:.4g}"


def _rows(answers: Answers) -> Iterator[list[Any]]:
    """A heading, then a row for each record: its class, or every number the model returns."""
    if answers.classes is not None and answers.probabilities is not None:
        yield ["record", "class", "probability"]
        pairs = zip(answers.classes.tolist(), answers.probabilities.tolist(), strict=True)
        yield from ([number, *pair] for number, pair in enumerate(pairs))
        return
    flat = [output.reshape(len(output), -1) for output in answers.outputs]
    yield ["record", *(f"y{i}.{j}" for i, f in enumerate(flat) for j in range(f.shape[1]))]
    for number in range(len(flat[0])):
        yield [number, *(value for f in flat for value in f[number].tolist())]


def _write(file: Path, answers: Answers) -> None:
    """Raises CannotWrite, DiskFull."""
    from crowdgrad.files import disk_errors, write_whole

    with disk_errors(file, "Choose another file with --out."):
        write_whole(file, _as_npz(answers) if file.suffix == ".npz" else _as_csv(answers))


def _as_csv(answers: Answers) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(_rows(answers))
    return text.getvalue().encode()


def _as_npz(answers: Answers) -> bytes:
    import numpy as np

    arrays: dict[str, Any] = {f"y{i}": output for i, output in enumerate(answers.outputs)}
    if answers.classes is not None:
        arrays |= {"class": answers.classes, "probability": answers.probabilities}
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def _as_json(model: Model, answers: Answers) -> dict[str, object]:
    from crowdgrad.host.telling.status import finite

    told: dict[str, object] = {"run": model.run.id, "records": len(answers.outputs[0])}
    if answers.classes is not None and answers.probabilities is not None:
        told["classes"] = answers.classes.tolist()
        told["probabilities"] = finite(answers.probabilities.tolist())
    told["outputs"] = finite([output.tolist() for output in answers.outputs])
    return told
