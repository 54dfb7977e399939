"""The .ts format of the time series archives: sequences of several channels, each with a class.

    @dimensions 2
    @data
    0.1,0.2,0.3:5,6,7:left

After `@data` every line is one sequence: its channels separated by colons, the class last. Lines
that begin with # are comments. Lengths may differ from line to line, not within one.
"""

from __future__ import annotations

import numpy as np

from crowdgrad.errors import DataMalformed


def parse_ts(data: bytes, what: str) -> tuple[list[np.ndarray], list[str]]:
    """Sequences, each float32 (steps, channels), and their classes. Raises DataMalformed."""
    lines = data.decode("utf-8", errors="replace").splitlines()
    begin = next((i for i, line in enumerate(lines) if line.strip().lower() == "@data"), None)
    if begin is None:
        raise DataMalformed(f"{what} has no line @data.", advice="Give a file in the .ts format.")
    sequences: list[np.ndarray] = []
    classes: list[str] = []
    for number, line in enumerate(lines[begin + 1 :], begin + 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        *channels, label = line.split(":")
        sequences.append(_sequence(channels, f"line {number} of {what}"))
        classes.append(label.strip())
    if len({sequence.shape[1] for sequence in sequences}) != 1:
        raise DataMalformed(
            f"{what} has no sequences, or sequences of different numbers of channels.",
            advice="Give every line the same number of channels.",
        )
    return sequences, classes


def _sequence(channels: list[str], where: str) -> np.ndarray:
    try:
        rows = [[float(value) for value in channel.split(",")] for channel in channels]
    except ValueError as error:
        raise DataMalformed(f"{where}: {error}.", advice="Write numbers.") from None
    if not rows or len({len(row) for row in rows}) != 1:
        raise DataMalformed(
            f"{where} has channels of {', '.join(str(len(row)) for row in rows) or 'no'} values.",
            advice="Give every channel of a sequence the same length.",
        )
    return np.array(rows, np.float32).T


def padded(sequences: list[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """(records, length, channels), zeros behind each end; and a mask, true where there is data."""
    longest = max(len(sequence) for sequence in sequences)
    if longest > length:
        raise DataMalformed(
            f"a sequence has {longest} steps, more than {length}.", advice="Pad to a larger length."
        )
    values = np.zeros((len(sequences), length, sequences[0].shape[1]), np.float32)
    mask = np.zeros((len(sequences), length), np.bool_)
    for row, sequence in enumerate(sequences):
        values[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = True
    return values, mask
