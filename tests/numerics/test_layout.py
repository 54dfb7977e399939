from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.numerics.layout import Layout, StateLayout


def tensors(*shapes: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=f"t{i}", dtype="float32", shape=s) for i, s in enumerate(shapes))


def test_tensors_lie_one_after_the_other():
    layout = Layout(tensors((2, 3), (), (4,), (0, 7)))
    assert layout.size == 11
    assert layout.offsets == (0, 6, 7, 11)


def test_views_share_the_vectors_memory():
    layout = Layout(tensors((2, 2), (3,)))
    vector = np.arange(7, dtype=np.float32)
    views = dict(layout.views(vector))
    first, second = views.values()
    assert first.tolist() == [[0, 1], [2, 3]]
    second[0] = -1
    assert vector[4] == -1


def test_pack_is_the_inverse_of_views():
    layout = Layout(tensors((2, 2), (3,)))
    vector = np.arange(7, dtype=np.float32)
    arrays = {tensor.name: view for tensor, view in layout.views(vector)}
    assert np.array_equal(layout.pack(arrays), vector)


def test_a_vector_of_another_size_is_refused():
    with pytest.raises(ValueError, match="7 numbers"):
        list(Layout(tensors((7,))).views(np.zeros(8, np.float32)))


# -- the whole state --------------------------------------------------------------------------


def test_buffers_lie_behind_the_parameters_as_they_are_stored():
    spec = small_spec()
    layout = StateLayout(spec)
    # 3 parameters; mean from word 4 (even) on, the counter from 6, the mask (3 bytes) from 8.
    assert (layout.size, layout.update_words, layout.words) == (3, 8, 9)
    arrays = {
        "w": np.array([1, 2, 3], np.float32),
        "mean": np.array([0.5, -0.5], np.float32),
        "count": np.array(2**40 + 1),
        "mask": np.array([True, False, True]),
    }
    state = layout.pack(arrays)
    assert state.dtype == np.float32
    found = {tensor.name: view for tensor, view in layout.tensors(state)}
    assert list(found) == ["w", "mean", "count", "mask"]
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
        assert np.shares_memory(found[name], state)
    update = state[: layout.update_words].copy()
    assert [(t.name, v.tolist()) for t, v in layout.buffers(update)] == [
        ("mean", [0.5, -0.5]),
        ("count", 2**40 + 1),
    ]
    assert [c.tolist() for c in layout.counters(update)] == [2**40 + 1]


def small_spec():
    def tensor(name, dtype, *shape):
        return TensorSpec(name=name, dtype=dtype, shape=shape)

    return ProgramSpec(
        parameters=(tensor("w", "float32", 3),),
        buffers=(tensor("mean", "float32", 2), tensor("count", "int64")),
        fixed=(tensor("mask", "bool", 3),),
        inputs=(tensor("x", "float32"),),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=1.0,
        opset=20,
    )
