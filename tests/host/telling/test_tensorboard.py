"""Event files: the bytes that TensorBoard's own writer makes, and what a full disk does to them."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path

from crowdgrad.host.telling.tensorboard import EventFile, Histogram, crc32c, event, masked, record
from tests.host.full_disk import full_at

# Written by tensorboard 2.21's RecordWriter from its own Event messages: the file's version, a
# number at step 1, three numbers and a histogram at step 300, and a number at step 400.
GOLDEN = """
1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9
200000000000000029eda9500900004040fc54d94110012a130a110a0a747261696e2f6c6f7373150000204035305392
c800000000000000fdaa90780900008040fc54d94110ac022ab9010a110a0a747261696e2f6c6f7373150000003e
0a1a0a13747261696e2f73616d706c65735f7065725f731500509a440a1a0a1376616c69646174696f6e2f61636375
72616379156666663f0a6c0a097374616c656e6573732a5f110000000000001040190000000000002440210000000000
002e4032200000000000000000000000000000f03f000000000000004000000000000010403a20000000000000144000
000000000008400000000000000000000000000000004052fd9b39
2100000000000000017becf6090000c040fc54d9411090032a130a110a0a747261696e2f6c6f737315000010419dbf2dfb
"""
# And so the beginning of a file that goes on from step 350.
RESUMED = "0900009042fc54d94110de023a020801"


def records(data: bytes) -> Iterator[bytes]:
    """What a reader takes for whole; raises where anything is damaged."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12]) == (masked(data[:8]),)
        content, data = data[12 : 12 + length], data[12 + length :]
        assert struct.unpack("<I", data[:4]) == (masked(content),)
        data = data[4:]
        yield content


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_the_checksum_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_the_bytes_are_those_of_tensorboards_own_writer(tmp_path: Path) -> None:
    file = EventFile(tmp_path, 1700000000.25)
    stale = Histogram(limits=[0.0, 1.0, 2.0, 4.0], counts=[5.0, 3.0, 0.0, 2.0], mean=1.5)
    file.add(1700000001.0, 1, {"train/loss": 2.5, "not finite": float("nan")})
    numbers = {"train/loss": 0.125, "train/samples_per_s": 1234.5, "validation/accuracy": 0.9}
    file.add(1700000002.0, 300, numbers, {"staleness": stale})
    file.add(1700000003.0, 400, {"train/loss": 9.0})
    file.close()
    assert only(tmp_path).read_bytes() == bytes.fromhex("".join(GOLDEN.split()))
    assert "tfevents" in only(tmp_path).name, "by this TensorBoard knows it"


def test_going_on_begins_a_new_file_that_says_from_where(tmp_path: Path) -> None:
    EventFile(tmp_path, 1700000000.25).close()
    EventFile(tmp_path, 1700000000.75, resumed_at=350).close()
    first, second = sorted(tmp_path.iterdir())
    assert list(records(first.read_bytes())) == [event(1700000000.25, version="brain.Event:2")]
    told = list(records(second.read_bytes()))[1]
    assert told == event(1700000000.75, 350, starts=True)
    assert event(1700000010.25, 350, starts=True) == bytes.fromhex(RESUMED)


def test_nothing_finite_is_nothing_written(tmp_path: Path) -> None:
    file = EventFile(tmp_path, 1.0)
    before = only(tmp_path).stat().st_size
    file.add(2.0, 1, {"loss": float("inf")})
    assert only(tmp_path).stat().st_size == before
    file.add(2.0, 1, {"loss": 1e300})  # more than a float32 holds
    assert len(list(records(only(tmp_path).read_bytes()))) == 2
    file.close()


def test_a_full_disk_costs_numbers_and_is_said_once(tmp_path: Path, caplog) -> None:
    with caplog.at_level(logging.WARNING), full_at(4000):
        file = EventFile(tmp_path, 1.0)
        for step in range(200):
            file.add(2.0, step, {"train/loss": 1.0})
    assert 2 <= len(list(records(only(tmp_path).read_bytes()))) < 200, "no half record at the end"
    assert len(caplog.records) == 1
    before = len(list(records(only(tmp_path).read_bytes())))
    file.add(3.0, 201, {"train/loss": 1.0})  # there is room again
    file.close()
    assert len(list(records(only(tmp_path).read_bytes()))) == before + 1


def test_a_folder_that_cannot_be_had_costs_numbers(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        file = EventFile(tmp_path / "file", 1.0)
        file.add(2.0, 1, {"train/loss": 1.0})
        file.close()
    assert len(caplog.records) == 1


def test_a_record_is_framed_as_its_reader_expects() -> None:
    assert list(records(record(b"a") + record(b"") + record(b"b" * 300))) == [b"a", b"", b"b" * 300]
