"""How much memory and work one batch of a program takes, told from its shapes alone.

onnxruntime frees a tensor after its last use, so the memory it needs is what is alive at once, and
what is lost between tensors of different sizes (`placement`). That depends on the order in which it
takes the nodes, which is not that of the file: from the last result backwards, everything a node
reads is made first, the latest of its sources before the others. The same walk is done here. The
runtime also joins nodes and numbers those anew, so its walk may be another; the order of the file
is tried too, and the worse of the two counts.
Reshaped tensors share their memory with what they were made of, and some operators take room of
their own while they run (`rooms`). What is computed of constants alone is computed once, when the
program is loaded, and stays.

Parameters, batch and noise, and the results that go into the update, lie elsewhere: they are bound
by address. Only what a model returns in evaluation is made here, and stays until the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from crowdgrad.errors import ProgramRefused
from crowdgrad.program.graph import Graph, Node
from crowdgrad.program.placement import GRAIN, Part, Placement
from crowdgrad.program.rooms import ITEM_BYTES, room_bytes
from crowdgrad.program.shapes import Shapes, Value, work
from crowdgrad.program.sizes import at

RETURNED: Final = "y:"
"""How the names of a model's own results begin: nobody binds them in an evaluation."""
_VIEWS: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_WORK: Final = "operations for one batch"
_SMALLER: Final = "The host can use smaller batches or a smaller model; help another job."


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one batch takes at most."""

    samples: int
    peak_bytes: int
    """The memory that holds what the program makes on its way and the room that its operators take
    while they run."""
    kept_bytes: int
    """Constants, and what is made of constants alone: there as long as the program is loaded."""
    total_bytes: int
    """Everything made, added up."""
    largest_bytes: int
    """The largest single tensor, or room of one operator."""
    work: int
    """Floating-point operations, roughly."""
    nodes: int
    """How many operations: a runtime keeps some notes about each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    largest_bytes: int = 4 << 30
    """One tensor. Runtimes count in 32 bits here and there, and nobody tests them beyond this."""
    kept_bytes: int = 64 << 20
    """Constants are small (`graph`), but what is computed of them need not be, and it is computed
    and kept while the program is loaded. Masks and positions of a long context take a few MiB."""
    peak_bytes: int = 1 << 38
    """256 GiB: whoever lends a machine says how much of it, and that is looked at elsewhere."""
    total_bytes: int = 1 << 40
    """Writing a TiB takes minutes, whatever the machine: no batch of a training takes that."""
    work: int = 10**15
    """Operations a batch. A core does 10¹⁰ to 10¹¹ a second, so this is hours. 32 windows of 256
    characters take a GPT of 25 million parameters 10¹²."""


LIMITS: Final = Limits()


def measure(graph: Graph, shapes: Shapes, samples: int, limits: Limits = LIMITS) -> Bounds:
    """The bounds of a graph at a batch of so many samples.

    Where it is beyond the limits anyway, all that is made counts as alive at once.
    """
    sizes = _sizes(shapes, samples)
    constant = _constants(graph, shapes)
    costs = list(_costs(graph.nodes, shapes, samples))
    total = sum(sizes[name] for node in graph.nodes for name in node.outputs if name)
    bounds = Bounds(
        samples=samples,
        peak_bytes=total,
        kept_bytes=sum(sizes[name] for name in constant if name),
        total_bytes=total,
        largest_bytes=max((*sizes.values(), *(room for room, _ in costs)), default=0),
        work=sum(operations for _, operations in costs),
        nodes=len(graph.nodes),
    )
    if any(found > limit for _, found, limit in _compare(bounds, limits)):
        return bounds
    run = [n for n, node in enumerate(graph.nodes) if not constant.issuperset(node.outputs)]
    nodes = [graph.nodes[n] for n in run]
    steps = _steps(graph, nodes, [costs[n][0] for n in run], sizes)
    peak = max(steps.peak(execution_order(nodes)), steps.peak(range(len(nodes))))
    return replace(bounds, peak_bytes=peak)


def refuse_beyond(bounds: Bounds, limits: Limits, what: str) -> None:
    """Raise ProgramRefused, in plain words, where one batch takes more than is allowed."""
    peak = ("memory for what it keeps between its steps", bounds.peak_bytes, limits.peak_bytes)
    for purpose, found, limit in (*_compare(bounds, limits), peak):
        if found > limit:
            show = "{:.1e}".format if purpose == _WORK else lambda n: f"{in_words(n)} of"
            raise ProgramRefused(
                f"{what} would take {show(found)} {purpose}, with batches of {bounds.samples}; "
                f"the limit is {show(limit).removesuffix(' of')}.",
                advice=_SMALLER,
            )


def _compare(bounds: Bounds, limits: Limits) -> tuple[tuple[str, int, int], ...]:
    """What can be told without knowing what is alive when: purpose, what it takes, the limit."""
    return (
        ("memory for a single tensor", bounds.largest_bytes, limits.largest_bytes),
        ("memory for its constants", bounds.kept_bytes, limits.kept_bytes),
        ("memory for all that its steps write", bounds.total_bytes, limits.total_bytes),
        (_WORK, bounds.work, limits.work),
    )


def in_words(size: int) -> str:
    """3.1 GB: bytes as people read them."""
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} bytes" if units[0] == "bytes" else f"{value:,.1f} {units[0]}"


def execution_order(nodes: Sequence[Node]) -> list[int]:
    """The order in which onnxruntime takes the nodes: depth first, backwards from what is last."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    sources = [sorted({maker[name] for name in node.inputs if name in maker}) for node in nodes]
    used = {source for each in sources for source in each}
    waiting = [(index, False) for index in range(len(nodes)) if index not in used]
    seen: set[int] = set()
    order: list[int] = []
    while waiting:
        index, complete = waiting.pop()
        if complete:
            order.append(index)
        elif index not in seen:
            seen.add(index)
            waiting.append((index, True))
            waiting.extend((source, False) for source in sources[index] if source not in seen)
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Nodes as memory sees them: buffers, which are numbered, and who takes and who reads them."""

    takes: list[list[int]]
    reads: list[list[int]]
    rooms: list[int]
    sizes: list[int]
    """Of the buffers, 0 for those that lie elsewhere."""
    uses: list[int]

    def peak(self, walk: Iterable[int]) -> int:
        """The memory it takes to go through the nodes in this order."""
        memory, left = Placement(), self.uses.copy()
        parts: list[Part | None] = [None] * len(left)
        for n in walk:
            for buffer in self.takes[n]:
                parts[buffer] = memory.take(self.sizes[buffer])
            if self.rooms[n]:
                memory.give(memory.take(self.rooms[n]))
            for buffer in self.reads[n]:
                left[buffer] -= 1
            for buffer in (*self.reads[n], *self.takes[n]):
                part = parts[buffer]
                if part is not None and not left[buffer]:
                    memory.give(part)
                    parts[buffer] = None
        return memory.high


def _steps(graph: Graph, nodes: list[Node], rooms: list[int], sizes: dict[str, int]) -> _Steps:
    bound = {port.name for port in graph.outputs if not port.name.startswith(RETURNED)}
    owner = _owners(nodes, {port.name for port in graph.outputs})
    number: dict[str, int] = {}
    reads, takes = [], []
    for node in nodes:
        reads.append([number.setdefault(owner.get(n, n), len(number)) for n in node.inputs])
        own = (name for name in node.outputs if name not in bound and name not in owner)
        takes.append([number.setdefault(name, len(number)) for name in own])
    counted = Counter(buffer for each in reads for buffer in each)
    counted.update(
        number[name]
        for port in graph.outputs
        if (name := owner.get(port.name, port.name)) in number
    )  # these never end
    return _Steps(
        takes=takes,
        reads=reads,
        rooms=rooms,
        sizes=[sizes.get(name, 0) for name in number],
        uses=[counted[buffer] for buffer in range(len(number))],
    )


def _costs(nodes: Iterable[Node], shapes: Shapes, samples: int) -> Iterator[tuple[int, int]]:
    """Room and work of each node; alike nodes read and make the same objects, and cost the same."""
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    values = shapes.values
    for node in nodes:
        names = (*node.inputs, *node.outputs)
        key = (node.op, id(node.attributes), *[id(values.get(name)) for name in names])
        if key not in known:
            known[key] = room_bytes(node, shapes, samples), work(node, shapes, samples)
        yield known[key]


def _owners(order: list[Node], results: set[str]) -> dict[str, str]:
    """For every tensor that is only another view of one: whose memory it shares. A result of the
    graph has memory of its own, whatever it is made of."""
    owner: dict[str, str] = {}
    for node in order:
        if node.op in _VIEWS and node.outputs[0] not in results:
            owner[node.outputs[0]] = owner.get(node.inputs[0], node.inputs[0])
    return owner


def _constants(graph: Graph, shapes: Shapes) -> set[str]:
    """Everything that depends on no input, and on no more of one than its fixed sizes: the runtime
    computes that when it loads the graph, too, and keeps it."""
    constant = {tensor.name for tensor in graph.constants} | {""}
    for node in graph.nodes:
        if constant.issuperset(node.inputs) or _told(node, shapes):
            constant.update(node.outputs)
    return constant


def _told(node: Node, shapes: Shapes) -> bool:
    """Whether all it makes are numbers that are known beforehand, whatever the batch."""
    known = [shapes.values[name].known for name in node.outputs]
    return all(made is not None and all(type(size) is int for size in made) for made in known)


def _sizes(shapes: Shapes, samples: int) -> dict[str, int]:
    """Bytes of every tensor; alike ones are the same object, and worked out once."""
    known: dict[int, int] = {}
    for value in shapes.values.values():
        if id(value) not in known:
            known[id(value)] = _bytes(value, samples)
    return {name: known[id(value)] for name, value in shapes.values.items()}


def _bytes(value: Value, samples: int) -> int:
    size = math.prod(at(size, samples) for size in value.dims) * ITEM_BYTES[value.element]
    return -(-size // GRAIN) * GRAIN
