"""A data set in memory: named fields, and for each split one array per field.

Records keep the type they are stored in (a pixel stays a uint8): casting and normalising are the
first operations of the program, so four times fewer bytes travel. All randomness here is drawn from
the raw stream of PCG64, which numpy promises never to change; the same seed gives the same split on
every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

import numpy as np

from crowdgrad.domain.data import Field, Split
from crowdgrad.domain.program import ITEM_BYTES, DType
from crowdgrad.errors import DataMalformed

SPLITS: tuple[Split, ...] = get_args(Split)
BLOCK_RECORDS = 4096

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataSet:
    """Checked where it is made: arrays as their fields say, equal in length, some to train on."""

    title: str
    fields: tuple[Field, ...]
    """Inputs first, then targets."""
    splits: dict[Split, Arrays]
    """Arrays in the order of the fields, records along the first dimension."""
    note: str = ""
    """What a person should know of where it comes from, e.g. "generated; not MNIST"."""
    classes: tuple[str, ...] = ()
    """The names of the target's classes, where it has some: class k is the k-th."""
    vocabulary: tuple[str, ...] = ()
    """What the numbers of a text stand for, where it is one."""
    source: str = ""
    """What it was made of, in words without a path."""
    licence: str = ""
    """As its owner says; empty: nobody knows."""

    def __post_init__(self) -> None:
        if len({field.name for field in self.fields}) != len(self.fields) or not self.fields:
            names = ", ".join(field.name for field in self.fields) or "none"
            raise DataMalformed(
                f"data set {self.title!r} has the fields {names}.",
                advice="Give it at least one field, each with a name of its own.",
            )
        if "train" not in self.splits:
            raise DataMalformed(
                f"data set {self.title!r} has no training records.",
                advice='Give arrays, or a mapping with the key "train".',
            )
        for split, arrays in self.splits.items():
            _check_split(self.title, split, self.fields, arrays)

    def records(self, split: Split) -> int:
        return len(self.splits[split][0]) if split in self.splits else 0

    @property
    def record_bytes(self) -> int:
        return sum(field.bytes for field in self.fields)

    @property
    def bytes(self) -> int:
        return self.record_bytes * sum(self.records(split) for split in self.splits)


def _check_split(title: str, split: str, fields: tuple[Field, ...], arrays: Arrays) -> None:
    where = f"split {split!r} of {title!r}"
    if split not in SPLITS:
        raise DataMalformed(
            f"{where} is not one we know.", advice=f"The splits are {', '.join(SPLITS)}."
        )
    if len(arrays) != len(fields):
        raise DataMalformed(
            f"{where} has {len(arrays)} arrays for {len(fields)} fields.",
            advice="Give every split one array per field, in the same order.",
        )
    for field, array in zip(fields, arrays, strict=True):
        if array.ndim == 0 or array.shape[1:] != field.shape or array.dtype != field.dtype:
            raise DataMalformed(
                f"{where}: field {field.name!r} holds {field.dtype} {field.shape}, "
                f"the array is {array.dtype} {array.shape}.",
                advice="Give every split the same types and record shapes, records first.",
            )
    counts = [len(array) for array in arrays]
    if len(set(counts)) != 1 or counts[0] == 0 or any(field.bytes == 0 for field in fields):
        raise DataMalformed(
            f"{where}: its arrays have {', '.join(map(str, counts))} records.",
            advice="Every array needs the same number of records, at least one, none empty.",
        )


def shuffled(count: int, *seed: int) -> np.ndarray:
    """0 … count−1 in an order that depends on the seed alone, on any machine and numpy version."""
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def from_arrays(
    *arrays: object,
    title: str = "my data",
    names: Sequence[str] | None = None,
    validation: float | None = None,
    test: float | None = None,
    seed: int = 0,
    note: str = "",
    classes: Sequence[str] = (),
    vocabulary: Sequence[str] = (),
) -> DataSet:
    """A data set from arrays (inputs first, then targets) or from one mapping of splits to arrays.

    Anything numpy can view is an array: numpy arrays, lists, torch tensors on the CPU. `validation`
    and `test` take that many records (a whole number) or that fraction (below 1) from the training
    records where the split is not given. Raises DataMalformed.
    """
    given: Mapping[str, object] = {"train": arrays}
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        given = arrays[0]
    splits = {cast(Split, split): _arrays(split, value) for split, value in given.items()}
    first = splits.get("train", ())
    fields = tuple(
        _field(name, array) for name, array in zip(_names(names, len(first)), first, strict=True)
    )
    dataset = DataSet(
        title=title,
        fields=fields,
        splits=splits,
        note=note,
        classes=tuple(classes),
        vocabulary=tuple(vocabulary),
    )
    wanted: dict[Split, float | None] = {"test": test, "validation": validation}
    for split, part in wanted.items():
        if part is not None:
            amounts = {"records": part} if part >= 1 else {"fraction": part}
            dataset = split_off(dataset, split, seed=seed, **amounts)
    return dataset


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        inputs = ("x",) if count <= 2 else tuple(f"x{i}" for i in range(count - 1))
        names = (*inputs, "y")[:count]
    if len(names) != count:
        raise DataMalformed(
            f"{len(names)} names for {count} arrays.", advice="Name every array, in order."
        )
    return tuple(names)


def _arrays(split: str, value: object) -> Arrays:
    if not isinstance(value, tuple | list):
        value = (value,)
    return tuple(_array(f"array {i} of {split!r}", part) for i, part in enumerate(value))


def _array(what: str, value: object) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataMalformed(
            f"{what} cannot be read as an array: {str(error).splitlines()[0]}.",
            advice="Give numpy arrays or CPU tensors (tensor.detach().cpu()) of one shape.",
        ) from error
    if array.dtype.name not in ITEM_BYTES:
        raise DataMalformed(
            f"{what} has the type {array.dtype}.",
            advice=f"Convert it with .astype(…) to one of {', '.join(ITEM_BYTES)}.",
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _field(name: str, array: np.ndarray) -> Field:
    try:
        return Field(name=name, dtype=cast(DType, array.dtype.name), shape=array.shape[1:])
    except ValueError as error:
        raise DataMalformed(f"field {name!r}: {error}.", advice="Rename or reshape it.") from error


def split_off(
    dataset: DataSet,
    split: Split = "validation",
    *,
    records: float | None = None,
    fraction: float | None = None,
    seed: int = 0,
) -> DataSet:
    """The data set with `split`: as it is where it has one, else taken from the training records.

    The same records for the same seed; both parts keep their order. A tenth unless told.
    """
    if split in dataset.splits:
        return dataset
    if records is not None and fraction is not None:
        raise ValueError("give records or fraction, not both")
    total = dataset.records("train")
    count = records if records is not None else total * (0.1 if fraction is None else fraction)
    if not (math.isfinite(count) and 1 <= int(count) < total):
        raise DataMalformed(
            f"cannot take {count:g} of {total} training records of {dataset.title!r} for {split}.",
            advice="Leave at least one record on either side.",
        )
    order = shuffled(total, seed, SPLITS.index(split))
    taken, kept = np.sort(order[: int(count)]), np.sort(order[int(count) :])
    train = dataset.splits["train"]
    parts: dict[Split, Arrays] = {
        "train": tuple(array[kept] for array in train),
        split: tuple(array[taken] for array in train),
    }
    return replace(dataset, splits=dataset.splits | parts)


def standardised(dataset: DataSet, *names: str, each: bool = False) -> DataSet:
    """The data set with mean and standard deviation of the training records in the named fields.

    The stored records stay as they are; the program subtracts and divides. `each`: one mean and
    deviation for each place of a record's first dimension, a column of a table or a channel of a
    picture; a field of single numbers has one all the same. What never varies is divided by 1.
    """
    fields = []
    for field, array in zip(dataset.fields, dataset.splits["train"], strict=True):
        if field.name in names:
            places = field.shape[0] if each and field.shape else 1
            means, stds = _moments(array.reshape(len(array), places, -1))
            mean, std = tuple(means.tolist()), tuple(np.where(stds > 0, stds, 1.0).tolist())
            several = each and bool(field.shape)
            field = replace(
                field, mean=mean if several else mean[0], std=std if several else std[0]
            )
        fields.append(field)
    return replace(dataset, fields=tuple(fields))


def _moments(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of (records, places, rest), a mean and a deviation a place, in float64.

    In blocks, so that no float64 copy of the whole field is made.
    """
    blocks = [array[i : i + BLOCK_RECORDS] for i in range(0, len(array), BLOCK_RECORDS)]
    count = len(array) * array.shape[2]
    mean = sum(block.sum(axis=(0, 2), dtype=np.float64) for block in blocks) / count
    squares = sum(np.square(block - mean[:, None]).sum(axis=(0, 2)) for block in blocks)
    return mean, np.sqrt(squares / count)
