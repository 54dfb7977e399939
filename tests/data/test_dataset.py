"""Data sets in memory: what is accepted, what is refused, and splits by seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.data.dataset import DataSet, from_arrays, shuffled, split_off, standardised
from crowdgrad.domain.data import Field
from crowdgrad.errors import DataMalformed

X = np.arange(40, dtype=np.uint8).reshape(10, 2, 2)
Y = np.arange(10, dtype=np.int64)


class Tensor:
    """What a CPU tensor of another library looks like to numpy."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values


class Attached:
    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nmore")


def test_arrays_become_fields_in_their_storage_type() -> None:
    dataset = from_arrays(X, Tensor(Y), title="ten", note="mine")
    assert [(f.name, f.dtype, f.shape) for f in dataset.fields] == [
        ("x", "uint8", (2, 2)),
        ("y", "int64", ()),
    ]
    assert dataset.records("train") == 10
    assert dataset.records("test") == 0
    assert dataset.bytes == 10 * (4 + 8)
    assert dataset.note == "mine"
    assert dataset.splits["train"][0] is X


def test_a_mapping_gives_the_splits() -> None:
    dataset = from_arrays({"train": (X, Y), "test": [X[:3], Y[:3]]}, names=("image", "label"))
    assert dataset.records("test") == 3
    assert dataset.fields[0].name == "image"


def test_three_arrays_get_distinct_names_and_lists_are_arrays() -> None:
    dataset = from_arrays(X, [0.5] * 10, Y)
    assert [field.name for field in dataset.fields] == ["x0", "x1", "y"]
    assert dataset.fields[1].dtype == "float64"


def test_foreign_byte_order_becomes_our_own() -> None:
    dataset = from_arrays(np.arange(3, dtype=">f4"))
    array = dataset.splits["train"][0]
    assert array.dtype == np.dtype("float32")
    assert array.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ((X, Y[:9]), "10, 9 records"),
        ((X[:0], Y[:0]), "0, 0 records"),
        ((np.zeros((3, 0)),), "records"),
        ((np.zeros(4, np.float16),), "float16"),
        ((np.array(["a", "b"]),), "<U1"),
        ((np.array([object()]),), "object"),
        (([[1, 2], [3]],), "cannot be read"),
        ((Attached(),), "requires grad"),
        ((np.float32(3),), "()"),
        (({"test": (X, Y)},), "fields none"),
        (({"train": (X, Y), "test": (X,)},), "1 arrays for 2 fields"),
        (({"train": (X, Y), "test": (X[:, :1], Y)},), "(10, 1, 2)"),
        (({"train": (X, Y), "test": (X.astype(np.float32), Y)},), "float32"),
        (({"train": (X, Y), "holdout": (X, Y)},), "'holdout'"),
        ((), "fields none"),
    ],
)
def test_misshapen_data_is_refused_with_its_values(arrays: tuple[object, ...], says: str) -> None:
    with pytest.raises(DataMalformed) as caught:
        from_arrays(*arrays)
    assert says in str(caught.value)
    assert caught.value.advice


def test_names_must_fit() -> None:
    with pytest.raises(DataMalformed, match="1 names for 2 arrays"):
        from_arrays(X, Y, names=("x",))
    with pytest.raises(DataMalformed, match="fields x, x"):
        from_arrays(X, Y, names=("x", "x"))
    with pytest.raises(DataMalformed, match="printable"):
        from_arrays(X, names=("\n",))


def test_training_records_are_needed() -> None:
    field = Field(name="x", dtype="uint8", shape=(2, 2))
    with pytest.raises(DataMalformed, match="no training records"):
        DataSet(title="t", fields=(field,), splits={"test": (X,)})


def test_validation_and_test_are_taken_by_count_or_fraction() -> None:
    dataset = from_arrays(X, Y, validation=0.25, test=2)
    assert {split: dataset.records(split) for split in dataset.splits} == {
        "train": 6,
        "test": 2,
        "validation": 2,
    }
    together = np.concatenate([arrays[1] for arrays in dataset.splits.values()])
    assert sorted(together) == list(range(10))


@settings(max_examples=30, deadline=None)
@given(records=st.integers(2, 200), seed=st.integers(0, 2**64 - 1), data=st.data())
def test_a_split_is_a_partition_that_keeps_records_whole(
    records: int, seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, records - 1))
    values = np.arange(records, dtype=np.int32)
    dataset = from_arrays(values, values * 7)
    first = split_off(dataset, records=count, seed=seed)
    again = split_off(dataset, records=count, seed=seed)
    x, y = first.splits["validation"]
    assert len(x) == count
    assert sorted([*x, *first.splits["train"][0]]) == list(range(records))
    assert np.array_equal(y, x * 7)
    assert np.array_equal(x, again.splits["validation"][0])


def test_another_seed_takes_other_records() -> None:
    dataset = from_arrays(np.arange(1000))
    taken = [set(split_off(dataset, seed=s).splits["validation"][0].tolist()) for s in (1, 2)]
    assert len(taken[0]) == len(taken[1]) == 100
    assert taken[0] != taken[1]


def test_a_split_that_exists_stays() -> None:
    dataset = from_arrays({"train": (X,), "validation": (X[:1],)})
    assert split_off(dataset, "validation", records=5) is dataset


@pytest.mark.parametrize("amount", [{"records": 0}, {"records": 10}, {"fraction": float("nan")}])
def test_both_sides_of_a_split_keep_a_record(amount: dict[str, float]) -> None:
    with pytest.raises(DataMalformed, match="of 10 training records"):
        split_off(from_arrays(X), **amount)
    with pytest.raises(ValueError, match="not both"):
        split_off(from_arrays(X), records=1, fraction=0.5)


def test_shuffles_do_not_depend_on_the_numpy_version() -> None:
    assert shuffled(10, 3).tolist() == [0, 4, 9, 7, 1, 5, 6, 3, 8, 2]
    assert sorted(shuffled(1000, 7, 1)) == list(range(1000))
    assert shuffled(1000, 7, 1).tolist() != shuffled(1000, 7, 2).tolist()


def test_statistics_are_those_of_the_training_records() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (9000, 3), dtype=np.uint8)
    dataset = standardised(from_arrays({"train": (x, x), "test": (x[:5], x[:5])}), "x")
    assert dataset.fields[0].mean == pytest.approx(x.mean())
    assert dataset.fields[0].std == pytest.approx(x.std())
    assert dataset.fields[1].mean is None
    assert dataset.splits["train"][0] is x


def test_a_constant_field_is_not_divided_by_zero() -> None:
    dataset = standardised(from_arrays(np.full(5, 3.0)), "x")
    assert (dataset.fields[0].mean, dataset.fields[0].std) == (3.0, 1.0)


def test_every_column_or_channel_may_have_statistics_of_its_own() -> None:
    rng = np.random.default_rng(0)
    table = (rng.normal(size=(9000, 3)) * [1e-3, 1, 1e4] + [5, 0, -1e5]).astype(np.float32)
    pictures = rng.integers(0, 255, (9000, 3, 4, 5), dtype=np.uint8)
    numbers = rng.normal(size=9000)
    table[:, 1] = 7  # a column that never varies
    dataset = standardised(
        from_arrays(table, pictures, numbers, names=("table", "pictures", "numbers")),
        "table", "pictures", "numbers", each=True,
    )  # fmt: skip
    columns, channels, alone = dataset.fields
    assert columns.mean == pytest.approx(tuple(table.mean(0, dtype=np.float64)))
    assert columns.std == pytest.approx((table[:, 0].std(dtype=np.float64), 1.0, table[:, 2].std()))
    assert channels.mean == pytest.approx(tuple(pictures.mean((0, 2, 3))))
    assert channels.std == pytest.approx(tuple(pictures.std((0, 2, 3))))
    assert (alone.mean, alone.std) == (pytest.approx(numbers.mean()), pytest.approx(numbers.std()))
