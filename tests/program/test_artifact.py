from __future__ import annotations

import zlib
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdgrad.domain.program import TensorSpec
from crowdgrad.errors import DataMalformed, ProgramRefused
from crowdgrad.program import artifact


def packed(content: bytes) -> bytes:
    return artifact.MAGIC + bytes([artifact.FORMAT]) + zlib.compress(content)


def test_a_program_survives_the_journey(captured):
    data = artifact.encode(captured.program)
    assert artifact.decode(data) == captured.program
    assert len(data) < 4000


def test_encoding_and_hash_are_deterministic(captured):
    data = artifact.encode(captured.program)
    assert artifact.encode(artifact.decode(data)) == data


def test_a_bomb_is_stopped_before_it_unfolds():
    bomb = packed(bytes(64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(ProgramRefused, match="unpacked"):
        artifact.decode(bomb)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: b"PK" + d[2:], "not a crowdgrad program"),
        (lambda d: b"", "not a crowdgrad program"),
        (lambda d: d[:6], "not a crowdgrad program"),
        (lambda d: d[:6] + b"\x63" + d[7:], "format 99"),
        (lambda d: d[:-9], "cut short"),
        (lambda d: d + b"more", "goes on"),
        (lambda d: d[:7] + b"noise" + d[7:], "decompress"),
        (lambda d: packed(b"\xc1"), "decode"),
        (lambda d: packed(msgspec.msgpack.encode({"spec": 1})), "decode"),
    ],
)
def test_altered_bytes_are_refused_with_the_reason(captured, change, reason):
    with pytest.raises(DataMalformed, match=reason):
        artifact.decode(change(artifact.encode(captured.program)))


def test_a_spec_that_makes_no_sense_is_malformed(captured):
    plain = msgspec.to_builtins(captured.program)
    plain["spec"]["inputs"][0]["shape"] = [-3]
    with pytest.raises(DataMalformed, match="decode"):
        artifact.decode(packed(msgspec.msgpack.encode(plain)))


def test_a_spec_is_bounded_before_objects_are_made_of_it(captured):
    plain = msgspec.to_builtins(captured.program, builtin_types=(bytes,))
    tensor = plain["spec"]["parameters"][0]
    plain["spec"]["parameters"] = [tensor | {"name": f"w{index}"} for index in range(20_000)]
    with pytest.raises(ProgramRefused, match="spec has"):
        artifact.decode(packed(msgspec.msgpack.encode(plain)))
    large = tuple(TensorSpec(name=f"w{i}", dtype="float32", shape=()) for i in range(20_000))
    program = replace(captured.program, spec=replace(captured.program.spec, parameters=large))
    with pytest.raises(ProgramRefused, match="spec has"):
        artifact.encode(program)


@pytest.mark.parametrize("nested", [b"\x91" * 1_000_000, b"\x81\xa1a" * 100_000])
def test_nesting_ends_in_a_refusal(nested):
    with pytest.raises(DataMalformed, match="does not decode"):
        artifact.decode(packed(nested))


def test_an_oversized_graph_is_refused_on_both_sides(captured):
    large = replace(captured.program, forward=bytes(artifact.MAX_ONNX_BYTES + 1))
    with pytest.raises(ProgramRefused, match="forward graph"):
        artifact.encode(large)
    with pytest.raises(ProgramRefused, match="forward graph"):
        artifact.decode(packed(msgspec.msgpack.encode(large)))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_our_errors(data):
    for candidate in (data, packed(data), artifact.MAGIC + b"\x01" + data):
        with pytest.raises((DataMalformed, ProgramRefused)):
            artifact.decode(candidate)
