"""Data that needs no network: what scikit-learn carries, and spirals made of nothing but numpy."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdgrad.data.dataset import DataSet, from_arrays, standardised
from crowdgrad.errors import MissingExtra

DIGITS_TEST_RECORDS = 360
SPLIT_SEED = 0
DIABETES_TEST_RECORDS = 88
SPIRAL_ARMS = 3
SPIRAL_RECORDS = 6000
SPIRAL_TEST_RECORDS = 1000
SPIRAL_NOISE = 0.02


def digits() -> DataSet:
    """1,797 pictures of 8×8 pixels from 0 to 16. Raises MissingExtra without scikit-learn.

    The file is read where scikit-learn has it: to import that takes two seconds, to read 6 ms.
    """
    carrier = importlib.util.find_spec("sklearn")
    if carrier is None or carrier.origin is None:
        raise _without("the digits come")
    file = Path(carrier.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    dataset = from_arrays(
        table[:, :-1].reshape(-1, 8, 8),
        table[:, -1],
        title="digits",
        test=DIGITS_TEST_RECORDS,
        seed=SPLIT_SEED,
        note="scikit-learn's 8×8 digits; not MNIST",
        classes=[str(digit) for digit in range(10)],
    )
    return replace(standardised(dataset, "x"), source="scikit-learn: load_digits")


def diabetes() -> DataSet:
    """442 patients: ten figures each, and how far the illness went in a year (25 to 346).

    The columns come scaled alike, so one mean and deviation make each of them standard.
    Raises MissingExtra without scikit-learn.
    """
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise _without("the diabetes table comes") from error
    bunch = load_diabetes()
    dataset = from_arrays(
        np.asarray(bunch.data, np.float32),
        np.asarray(bunch.target, np.float32),
        title="diabetes",
        test=DIABETES_TEST_RECORDS,
        seed=SPLIT_SEED,
        note="scikit-learn's table of 442 patients: the course of an illness over a year",
    )
    return standardised(dataset, "x")


def _without(what: str) -> MissingExtra:
    return MissingExtra(
        f"{what} with scikit-learn, which is not installed.",
        advice="In a clone of the project: pip install -c constraints.txt '.[host]'.",
    )


def spirals(seed: int = 0) -> DataSet:
    """Points on three entwined spirals: a small network tells them apart, a line does not."""
    raw = np.random.PCG64(seed).random_raw(2 * SPIRAL_RECORDS)
    radius, jitter = ((raw >> np.uint64(40)) / float(1 << 24)).reshape(2, SPIRAL_RECORDS)
    arm = np.arange(SPIRAL_RECORDS) % SPIRAL_ARMS
    angle = 2 * np.pi * (arm / SPIRAL_ARMS + 0.75 * radius + SPIRAL_NOISE * (jitter - 0.5))
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    dataset = from_arrays(
        points.astype(np.float32),
        arm.astype(np.uint8),
        title="spirals",
        test=SPIRAL_TEST_RECORDS,
        seed=seed,
        note="generated; not MNIST",
    )
    return standardised(dataset, "x")
