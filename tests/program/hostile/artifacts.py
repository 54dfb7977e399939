"""Artifacts that are no artifacts, unfold without end, or hold a spec that lies."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from crowdgrad.program import artifact
from tests.program.hostile.draft import Case, program

Plain = dict[str, Any]


def packed(content: bytes, level: int = 9) -> bytes:
    return artifact.MAGIC + bytes([artifact.FORMAT]) + zlib.compress(content, level)


def sound() -> bytes:
    return artifact.encode(program())


def lying(change: Callable[[Plain], object]) -> bytes:
    """An artifact whose content was altered before it was packed."""
    plain: Plain = msgspec.to_builtins(program(), builtin_types=(bytes,))
    change(plain)
    return packed(msgspec.msgpack.encode(plain))


def in_spec(name: str, value: object) -> Callable[[], bytes]:
    return lambda: lying(lambda plain: plain["spec"].__setitem__(name, value))


def tensor(**values: object) -> Plain:
    return {"name": "w", "dtype": "float32", "shape": [4, 3]} | values


def cases() -> Iterator[Case]:
    yield from _bytes()
    yield from _lies()
    yield from _msgpack()


def _case(slug: str, says: str, reason: str, make: Callable[[], bytes]) -> Case:
    return Case(name=f"artifact/{slug}", says=says, reason=reason, make=make)


def _bytes() -> Iterator[Case]:
    limit = artifact.MAX_UNPACKED_BYTES
    table: dict[str, tuple[str, str, Callable[[], bytes]]] = {
        "empty": ("no bytes", "not a crowdgrad program", lambda: b""),
        "magic_alone": ("the first six bytes", "not a crowdgrad program", lambda: artifact.MAGIC),
        "other_magic": ("a zip file", "not a crowdgrad program", lambda: b"PK\3\4" + sound()[4:]),
        "lower_case_magic": ("the magic in small letters", "not a crowdgrad program",
                             lambda: b"cgprog" + sound()[6:]),
        "format_0": ("format 0", "format 0", lambda: sound()[:6] + b"\0" + sound()[7:]),
        "format_255": ("format 255", "format 255", lambda: sound()[:6] + b"\xff" + sound()[7:]),
        "no_stream": ("a head and nothing else", "cut short", lambda: sound()[:7]),
        "cut_stream": ("half of it", "cut short", lambda: sound()[: len(sound()) // 2]),
        "cut_checksum": ("the last byte missing", "cut short", lambda: sound()[:-1]),
        "wrong_checksum": ("a wrong checksum", "decompress",
                           lambda: sound()[:-1] + bytes([sound()[-1] ^ 1])),
        "trailing": ("a byte too many", "goes on after its end", lambda: sound() + b"\0"),
        "two_streams": ("two streams", "goes on after its end", lambda: sound() + sound()[7:]),
        "gzip": ("gzip instead of zlib", "decompress",
                 lambda: sound()[:7] + b"\x1f\x8b\x08" + sound()[10:]),
        "dictionary": ("a stream that needs a dictionary", "decompress",
                       lambda: sound()[:7] + b"\x78\xf9\0\0\0\1" + sound()[9:]),
        "stored": ("not compressed at all", "decompress",
                   lambda: sound()[:7] + msgspec.msgpack.encode(program())),
        "bomb": ("64 MB of zeros", "bytes unpacked", lambda: packed(bytes(64 << 20))),
        "bomb_of_a_gigabyte": ("a gigabyte of zeros", "bytes unpacked", gigabyte),
        "one_byte_beyond": ("one byte too many", "bytes unpacked",
                            lambda: packed(bytes(limit + 1), 1)),
        "bomb_in_a_bomb": ("a bomb in a bomb", "decode", lambda: packed(packed(bytes(64 << 20)))),
        "huge_graph": ("a graph of 5 MB", "gradient graph has \\d+ bytes",
                       lambda: lying(lambda plain: plain.update(gradient=bytes(5 << 20)))),
        "huge_forward": ("a forward graph of 5 MB", "forward graph has \\d+ bytes",
                         lambda: lying(lambda plain: plain.update(forward=bytes(5 << 20)))),
    }  # fmt: skip
    for slug, (says, reason, make) in table.items():
        yield _case(slug, says, reason, make)


def gigabyte() -> bytes:
    """Made piece by piece: the test must not need the memory it is about."""
    stream = zlib.compressobj(9)
    block = bytes(1 << 20)
    pieces = b"".join(stream.compress(block) for _ in range(1024))
    return artifact.MAGIC + bytes([artifact.FORMAT]) + pieces + stream.flush()


def _lies() -> Iterator[Case]:
    many = [tensor(name=f"w{index}", shape=[1]) for index in range(100_000)]
    long = "w" * 257
    fields: dict[str, tuple[str, object, str]] = {
        "work_of_nan": ("work_per_sample", math.nan, "work per sample"),
        "work_of_infinity": ("work_per_sample", math.inf, "work per sample"),
        "work_of_zero": ("work_per_sample", 0.0, "work per sample"),
        "work_negative": ("work_per_sample", -1.0, "work per sample"),
        "work_a_text": ("work_per_sample", "1", "work_per_sample"),
        "opset_9999": ("opset", 9999, "opset 9999"),
        "opset_a_float": ("opset", 20.5, "opset"),
        "opset_of_100_bits": ("opset", (1 << 64) - 1, "opset|decode"),
        "outputs_minus_one": ("outputs", -1, "outputs"),
        "outputs_huge": ("outputs", 1 << 60, "outputs"),
        "no_parameters": ("parameters", [], "at least one parameter"),
        "no_inputs": ("inputs", [], "at least one parameter and one input"),
        "a_hundred_thousand_parameters": ("parameters", many, "spec has \\d+ bytes"),
        "a_hundred_thousand_buffers": ("buffers", many, "spec has \\d+ bytes"),
        "name_empty": ("parameters", [tensor(name="")], "name"),
        "name_long": ("parameters", [tensor(name=long)], "name"),
        "name_of_a_megabyte": ("parameters", [tensor(name="w" * (1 << 20))], "spec has \\d+ bytes"),
        "name_escapes": ("parameters", [tensor(name="\x1b[2J")], "name"),
        "name_newline": ("parameters", [tensor(name="a\nb")], "name"),
        "name_twice": ("parameters", [tensor(), tensor()], "same name"),
        "name_not_text": ("parameters", [tensor(name=b"w")], "name"),
        "shape_negative": ("parameters", [tensor(shape=[-4, 3])], "shape"),
        "shape_of_rank_9": ("parameters", [tensor(shape=[1] * 9)], "shape"),
        "shape_of_rank_100000": ("parameters", [tensor(shape=[1] * 100_000)], "shape"),
        "shape_huge": ("parameters", [tensor(shape=[1 << 62, 1 << 62])], "shape|elements"),
        "shape_of_floats": ("parameters", [tensor(shape=[4.5, 3])], "shape"),
        "shape_of_truth": ("parameters", [tensor(shape=[True, 3])], "shape"),
        "dtype_float16": ("parameters", [tensor(dtype="float16")], "dtype|float16"),
        "dtype_object": ("parameters", [tensor(dtype="object")], "dtype|object"),
        "parameters_of_int64": ("parameters", [tensor(dtype="int64")], "float32"),
        "buffer_of_truth": ("buffers", [tensor(name="m", dtype="bool")], "truth"),
        "frozen_unknown": ("frozen", ["nobody"], "frozen"),
        "fixed_batch_huge": ("fixed_batch", 1 << 30, "batches"),
        "fixed_batch_negative": ("fixed_batch", -1, "batches"),
        "smallest_batch_zero": ("smallest_batch", 0, "batches"),
        "smallest_batch_huge": ("smallest_batch", 1 << 30, "batches"),
        "weighted_without_weights": ("weighted", 1, "weighted"),
        "noise_of_another_kind": (
            "noise", [{"name": "z", "kind": "cauchy", "shape": [], "per_sample": True}], "kind"),
        "noise_axis": ("noise", [{"name": "z", "kind": "normal", "shape": [2], "per_sample": True,
                                  "batch_axis": 7}], "axis"),
        "metric_twice": ("metrics", [{"name": "a"}, {"name": "a"}], "same name"),
        "metric_of_mean": ("metrics", [{"name": "a", "of_mean": "eval"}], "of_mean"),
        "spec_of_null": ("inputs", None, "inputs"),
    }  # fmt: skip
    for slug, (name, value, reason) in fields.items():
        says = f"a spec whose {name} is {str(value)[:30]!a}"
        yield _case(slug, says, reason, in_spec(name, value))


def _msgpack() -> Iterator[Case]:
    whole = {"spec": 1, "gradient": b"", "forward": b""}
    table: dict[str, tuple[str, Callable[[], bytes]]] = {
        "never_used_byte": ("a byte msgpack never uses", lambda: b"\xc1"),
        "a_number": ("a number", lambda: b"\x01"),
        "nothing": ("no content", lambda: b""),
        "a_list": ("a list", lambda: msgspec.msgpack.encode([1, 2, 3])),
        "empty_map": ("an empty map", lambda: b"\x80"),
        "spec_of_one": ("a spec that is a number", lambda: msgspec.msgpack.encode(whole)),
        "deep_lists": ("a million lists in lists", lambda: b"\x91" * 1_000_000),
        "deep_maps": ("maps in maps", lambda: b"\x81\xa1a" * 100_000),
        "promised_lists": ("a list of four billion that ends at once",
                           lambda: b"\x81\xa4spec\xdd\xff\xff\xff\xff"),
        "promised_map": ("a map of four billion", lambda: b"\xdf\xff\xff\xff\xff"),
        "promised_bytes": ("bytes of four billion",
                           lambda: b"\x81\xa8gradient\xc6\xff\xff\xff\xff"),
        "promised_text": ("a text of four billion", lambda: b"\xdb\xff\xff\xff\xff"),
        "many_empty_maps": ("8 MB of parameters that are empty maps", _empty_maps),
        "many_unknown_keys": ("a million unknown keys", _unknown_keys),
        "extension": ("an extension type", lambda: b"\xc7\x04\x05abcd"),
        "timestamp": ("a time", lambda: b"\xd6\xff\0\0\0\0"),
        "trailing": ("two values", lambda: msgspec.msgpack.encode(program()) + b"\xc0"),
        "not_utf8": ("a key that is not UTF-8", lambda: b"\x81\xa2\xff\xfe\xc0"),
    }  # fmt: skip
    for slug, (says, make) in table.items():
        yield _case(
            f"msgpack_{slug}", says, "decode|unknown|parameters", lambda make=make: packed(make())
        )


def _empty_maps() -> bytes:
    count = (8 << 20) - 1000
    return b"\x81\xa4spec\x81\xaaparameters\xdd" + count.to_bytes(4, "big") + b"\x80" * count


def _unknown_keys() -> bytes:
    count = 1_000_000
    return b"\x81\xa4spec\xdf" + count.to_bytes(4, "big") + b"\xa3abc\xc0" * count
