"""Programs of any layout: parameters, some of them frozen, and buffers of any type."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from crowdgrad.domain.program import ProgramSpec, TensorSpec


def spec_of(
    shapes: Sequence[tuple[int, ...]],
    *,
    frozen: tuple[str, ...] = (),
    buffers: tuple[TensorSpec, ...] = (),
    fixed: tuple[TensorSpec, ...] = (),
) -> ProgramSpec:
    return ProgramSpec(
        parameters=tuple(
            TensorSpec(name=f"w{i}", dtype="float32", shape=shape) for i, shape in enumerate(shapes)
        ),
        buffers=buffers,
        inputs=(TensorSpec(name="x", dtype="float32", shape=(1,)),),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=1.0,
        opset=18,
        frozen=frozen,
        fixed=fixed,
    )


@st.composite
def specs(draw: st.DrawFn, *, largest: int = 400) -> ProgramSpec:
    sizes = draw(st.lists(st.integers(1, largest), min_size=1, max_size=5))
    frozen = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    kinds = st.sampled_from(("float32", "float64", "int64", "int32", "uint8"))
    buffers = draw(st.lists(st.tuples(kinds, st.integers(1, 9)), max_size=3))
    fixed = draw(st.lists(st.tuples(kinds, st.integers(1, 9)), max_size=2))
    return spec_of(
        [(size,) for size in sizes],
        frozen=tuple(f"w{i}" for i, is_frozen in enumerate(frozen) if is_frozen),
        buffers=tuple(
            TensorSpec(name=f"b{i}", dtype=dtype, shape=(n,))
            for i, (dtype, n) in enumerate(buffers)
        ),
        fixed=tuple(
            TensorSpec(name=f"f{i}", dtype=dtype, shape=(n,)) for i, (dtype, n) in enumerate(fixed)
        ),
    )
