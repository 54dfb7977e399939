from __future__ import annotations

import numpy as np
import pytest

from crowdgrad.domain.program import TensorSpec
from crowdgrad.numerics.layout import Layout


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
