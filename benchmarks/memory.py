"""Whether a trainer keeps to the memory that was predicted from its program alone.

Each program is trained and evaluated by a process of its own (`_alone`); what the kernel counted as
its most is divided by the prediction, which knows only the checked file and the batch size.

whole_by_predicted    the whole process: interpreter, libraries, parameters, batches, engine
engine_by_predicted   what the engine added to a process that had warmed up, by the prediction for
                      it; tiny programs are far below because every graph is granted a few MB
large_by_predicted    the same for programs predicted at more than 32 MB
engine_max_MB         the most an engine took here
runtime_MB            a warmed-up process before its program, as it is reckoned in every prediction

Programs: every example at its job's batch size, the models of `engines` at their batch and at four
times that, ResNet-18 and a GPT of 25 million parameters, and the operators of the tests at batches
of 2,000, one in ten with --quick. The claim is that no value is above 1.2.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from _large import gpt, next_token_loss
from _models import MODELS, resnet18
from _report import Report, arguments

import crowdgrad as cg
from crowdgrad import settings
from crowdgrad.capture.capture import capture
from crowdgrad.domain.program import Program
from crowdgrad.errors import CrowdgradError
from crowdgrad.host import jobfile
from crowdgrad.host.job import prepare
from crowdgrad.planner.batches import largest_batch
from crowdgrad.program.artifact import encode

ROOT = Path(__file__).parents[1]
LARGE_BYTES = 32e6
OPERATORS_BATCH = 2000
Named = tuple[str, Program, int]
"""A name, a program, the batch size."""


def examples() -> Iterator[Named]:
    cache = settings.load().home / "data"
    for file in sorted(ROOT.glob("examples/*/*.toml")):
        prepared = prepare(jobfile.read(file, cache=cache))
        spec, local = prepared.program.spec, prepared.job.local
        records = [shard.records for shard in prepared.manifest.shards]
        yield (
            f"{file.parent.name}-{file.stem}",
            prepared.program,
            largest_batch(local, spec, records, prepared.job.stop.epochs),
        )


def models() -> Iterator[Named]:
    for name, make in MODELS.items():
        torch.manual_seed(0)
        task, batch = make()
        program = capture(task).program
        for samples in (len(batch[0]), 4 * len(batch[0])):
            yield f"{name}-{samples}", program, samples
    yield "resnet18", capture(resnet18()[0]).program, 16
    ids = torch.zeros(2, 256, dtype=torch.int64)
    task = cg.Task(gpt(), next_token_loss, inputs=(ids,), targets=(ids,))
    yield "gpt25", capture(task).program, 4


def operators(every: int) -> Iterator[Named]:
    from tests.capture.operators import CASES

    for case in CASES[::every]:
        module, inputs = case.build()
        targets = (torch.zeros(len(inputs[0])),)
        task = cg.Task(module, lambda y, _: y.mean(), inputs=inputs, targets=targets)
        try:
            yield case.name, capture(task).program, OPERATORS_BATCH
        except CrowdgradError as error:  # a case without parameters is no model to train
            print(f"{case.name}: {error}", file=sys.stderr)


def alone(folder: Path, program: Program, samples: int) -> dict[str, int]:
    file = folder / "program"
    file.write_bytes(encode(program))
    command = [sys.executable, str(Path(__file__).with_name("_alone.py")), str(file), str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, int] = json.loads(done.stdout)
    return found


def main() -> None:
    args = arguments(__doc__)
    report = Report("memory", args.quick)
    torch.set_num_threads(1)
    found: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        for source in (models(), examples(), operators(10 if args.quick else 1)):
            for name, program, samples in source:
                one = alone(Path(folder), program, samples)
                found.append(one)
                print(
                    f"{name}: {one['measured'] / 1e6:.1f} MB of {one['predicted'] / 1e6:.1f}, "
                    f"engine {one['engine_measured'] / 1e6:.1f} of "
                    f"{one['engine_predicted'] / 1e6:.1f}",
                    file=sys.stderr,
                )
    ratios = [one["engine_measured"] / one["engine_predicted"] for one in found]
    large = [
        r for r, one in zip(ratios, found, strict=True) if one["engine_predicted"] > LARGE_BYTES
    ]
    report.add("whole_by_predicted", [one["measured"] / one["predicted"] for one in found])
    report.add("engine_by_predicted", ratios)
    report.add("large_by_predicted", large)
    report.add("engine_max_MB", [max(one["engine_measured"] for one in found) / 1e6])
    report.add("runtime_MB", [one["runtime"] / 1e6 for one in found])
    report.write(args.json)


if __name__ == "__main__":
    main()
