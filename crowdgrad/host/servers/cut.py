"""How the words of a state are cut among servers, and what each is told of its part.

Parts are stretches of words, one after the other, about as long as each other; the last also has
the buffers behind the parameters. Rules work on each number by itself, so to a server its part is a
program of its own: parameters that are trained or frozen, perhaps buffers. A part begins at an even
word, since buffers of 64 bits do, and where there is enough of everything at a multiple of 64
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.errors import SettingError

STEP = 16
"""Words from one place where a part may begin to the next; 2 where a model is tiny."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Words [start, stop) of a state, of which [start, update_stop) are in an update."""

    start: int
    stop: int
    update_stop: int
    spec: ProgramSpec
    """As if the part were a program of its own."""


def cut(spec: ProgramSpec, servers: int) -> tuple[Part, ...]:
    """As many parts as servers. Raises SettingError where there are not enough words."""
    step = STEP if spec.size >= 4 * STEP * servers else 2
    if servers < 1 or (servers - 1) * step >= spec.size:
        raise SettingError(
            f"{spec.size} parameters cannot be cut among {servers} servers.",
            advice="Use fewer; small models need none.",
        )
    starts = [0]
    for number in range(1, servers):
        ideal = round(number * spec.state_words / servers / step) * step
        last = (spec.size - 1) // step * step  # where the last part may begin
        starts.append(min(max(ideal, starts[-1] + step), last - (servers - 1 - number) * step))
    inner = [(start, stop, stop) for start, stop in pairwise(starts)]
    bounds = [*inner, (starts[-1], spec.state_words, spec.update_words)]
    return tuple(Part(start=a, stop=b, update_stop=c, spec=_spec(spec, a, b)) for a, b, c in bounds)


def whole(spec: ProgramSpec) -> Part:
    """Everything, as one part."""
    return cut(spec, 1)[0]


def _spec(spec: ProgramSpec, start: int, stop: int) -> ProgramSpec:
    """Of words [start, stop): names are ours, so that what travels is small."""
    last = stop >= spec.size
    runs = list(_runs(spec, start, min(stop, spec.size)))
    parameters = tuple(
        TensorSpec(name=f"parameters {number}", dtype="float32", shape=(words,))
        for number, (_, words) in enumerate(runs)
    )
    return ProgramSpec(
        parameters=parameters,
        buffers=_renamed("buffer", spec.buffers) if last else (),
        inputs=(TensorSpec(name="input", dtype="float32", shape=(1,)),),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=spec.work_per_sample,
        opset=spec.opset,
        frozen=tuple(
            tensor.name for tensor, (frozen, _) in zip(parameters, runs, strict=True) if frozen
        ),
        fixed=_renamed("fixed", spec.fixed) if last else (),
    )


def _runs(spec: ProgramSpec, start: int, stop: int) -> Iterator[tuple[bool, int]]:
    """Whether frozen, and how many words, one stretch after the other."""
    at, frozen, words = 0, False, 0
    for tensor in spec.parameters:
        inside = max(0, min(stop, at + tensor.elements) - max(start, at))
        at += tensor.elements
        if not inside:
            continue
        if words and frozen != (tensor.name in spec.frozen):
            yield frozen, words
            words = 0
        frozen, words = tensor.name in spec.frozen, words + inside
    yield frozen, words


def _renamed(name: str, tensors: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    return tuple(replace(tensor, name=f"{name} {i}") for i, tensor in enumerate(tensors))
