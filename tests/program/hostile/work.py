"""Files that would compute for days: within memory, but without end."""

from __future__ import annotations

from collections.abc import Iterator

from crowdgrad.domain.program import Program
from tests.program.hostile.draft import Case, program, with_nodes
from tests.program.hostile.proto import int64s, node

TOO_LONG = "operations for one batch"


def cases() -> Iterator[Case]:
    table = {
        "matmuls": ("10000 products of large matrices", lambda: products("MatMul", 10_000)),
        "gemms": ("10000 products of large matrices by Gemm", lambda: products("Gemm", 10_000)),
        "batched_products": ("1500 products of stacks of large matrices", batched),
        "convolutions": ("8000 convolutions of 4096 channels", lambda: windows("Conv")),
        "transposed": ("8000 of their gradients", lambda: windows("ConvTranspose")),
        "pools": ("500 pools over windows of four million numbers", pools),
    }
    for name, (says, make) in table.items():
        yield Case(name=f"work/{name}", says=says, reason=TOO_LONG, make=make)
    yield Case(
        name="work/many_nodes",
        says="more nodes than any model has",
        reason="more than \\d+ nodes",
        make=lambda: with_nodes(*[node("Neg", "loss", "")] * 60_000),
    )
    yield Case(
        name="work/one_tensor_for_all",
        says="10000 readers of one tensor, which the runtime takes half a minute to load",
        reason="is read by 10001 nodes",
        make=lambda: with_nodes(
            node("Expand", "loss side", "m"),
            *chain("MatMul", 10_000, "m", "m"),
            constants=[int64s("side", 8, 8)],
        ),
    )
    yield Case(
        name="work/batch",
        says="products of samples with samples, for a large batch",
        reason=TOO_LONG,
        make=batch_products,
        samples=1 << 14,
    )
    yield Case(
        name="work/batch_without_end",
        says="a job with batches of a billion",
        reason="batches of \\d+ samples are not",
        make=program,
        samples=1 << 30,
    )


def chain(op: str, count: int, first: str, second: str, **values: tuple[int, ...]) -> list[bytes]:
    """`first` goes through the same operator again and again, with one of the values of `second`:
    a single one would have too many readers."""
    begin, others = [node("Identity", first, "c0")], second.split() or [""]
    inputs = (f"c{index} {others[index % len(others)]}" for index in range(count))
    return begin + [
        node(op, each.strip(), f"c{index + 1}", **values) for index, each in enumerate(inputs)
    ]


def products(op: str, count: int) -> Program:
    """Of matrices of 64 MB each, made from the loss: what constants alone decide is made once."""
    made = [node("Expand", "loss side", name) for name in ("m", "n", "o")]
    nodes = chain(op, count, "m", "m n o")
    return with_nodes(*made, *nodes, constants=[int64s("side", 4096, 4096)])


def batched() -> Program:
    made = node("Expand", "loss stack", "m")
    sides = int64s("stack", 8, 4096, 4096)
    return with_nodes(made, *chain("MatMul", 1500, "m", "m"), constants=[sides])


def batch_products() -> Program:
    """Of 16384 samples: a gigabyte each, and 16384³ products."""
    first = (node("Transpose", "x:x", "t", perm=(1, 0)), node("MatMul", "x:x t", "s"))
    return with_nodes(*first, *chain("MatMul", 200, "s", "s"))


def windows(op: str) -> Program:
    made = [node("Expand", "loss image", "i")]
    made += [node("Expand", "loss kernel", name) for name in ("k", "l", "m")]
    sides = int64s("image", 1, 4096, 64, 64), int64s("kernel", 4096, 4096, 1, 1)
    return with_nodes(*made, *chain(op, 8000, "i", "k l m", kernel_shape=(1, 1)), constants=sides)


def pools() -> Program:
    made = node("Expand", "loss image", "i")
    values = {"kernel_shape": (2047, 2047), "pads": (1023,) * 4}
    nodes = chain("AveragePool", 500, "i", "", **values)
    return with_nodes(made, *nodes, constants=[int64s("image", 1, 1, 2048, 2048)])
