"""Parts of a slot: every byte belongs to one server, and not every address is dialled."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.job import ServerPlace
from crowdgrad.domain.program import ProgramSpec, TensorSpec
from crowdgrad.domain.work import CodecName, wire_place
from crowdgrad.errors import MessageError, NotDialled
from crowdgrad.volunteer.parts import machine_of, parts_of

WIDTH = {"fp32": 4, "fp16": 2, "bf16": 2}


def spec(size: int, buffers: int = 0, fixed: int = 0) -> ProgramSpec:
    def tensors(name: str, elements: int) -> tuple[TensorSpec, ...]:
        return (TensorSpec(name=name, dtype="float32", shape=(elements,)),) if elements else ()

    return ProgramSpec(
        parameters=tensors("w", size),
        buffers=tensors("b", buffers),
        fixed=tensors("f", fixed),
        inputs=(TensorSpec(name="x", dtype="uint8", shape=(1,)),),
        noise=(),
        metrics=(),
        outputs=1,
        work_per_sample=1.0,
        opset=20,
    )


def places(program: ProgramSpec, *cuts: int) -> list[ServerPlace]:
    """One server from each cut to the next; the last has all that follows the parameters."""
    found = [
        ServerPlace(address=f"s:{n + 1}", token=f"t{n}", start=a, stop=b, update_stop=b)
        for n, (a, b) in enumerate(pairwise([0, *cuts, program.size]))
    ]
    last = found[-1]
    found[-1] = ServerPlace(
        address=last.address,
        token=last.token,
        start=last.start,
        stop=program.state_words,
        update_stop=program.update_words,
    )
    return found


@given(data=st.data())
def test_parts_are_the_whole_slot_without_gap_or_overlap(data: st.DataObject) -> None:
    codec: CodecName = data.draw(st.sampled_from(["fp32", "fp16", "bf16"]))
    program = spec(
        data.draw(st.integers(1, 50)), data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    )
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, program.size - 1)), max_size=5)))
    cuts = [cut for cut in cuts if cut < program.size]
    parts = parts_of(places(program, *cuts), program, codec, host="192.0.2.1")
    words = [wire_place(codec, program.size, n) for n in range(program.state_words + 1)]
    assert all(b - a == (WIDTH[codec] if n < program.size else 4)
               for n, (a, b) in enumerate(pairwise(words)))  # fmt: skip
    for chosen, count in (("state", program.state_words), ("update", program.update_words)):
        slices = [getattr(part, chosen) for part in parts]
        assert [slices[0].start, *(s.stop for s in slices)] == [words[n] for n in
                                                              [0, *cuts, count]]  # fmt: skip
        assert all(a.stop == b.start for a, b in pairwise(slices))


PROGRAM = spec(10, buffers=2, fixed=2)
WHOLE = (PROGRAM.state_words, PROGRAM.update_words)


def place(start: int, stop: int, update_stop: int | None = None) -> ServerPlace:
    return ServerPlace(
        address="s:1",
        token="",
        start=start,
        stop=stop,
        update_stop=stop if update_stop is None else update_stop,
    )


def test_it_is_this_one_that_fits() -> None:
    assert len(parts_of([place(0, 5), place(5, *WHOLE)], PROGRAM, "fp32", host="h")) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        [place(0, 5)],  # the rest is missing
        [place(0, 5), place(6, *WHOLE)],  # a gap
        [place(0, 5), place(4, *WHOLE)],  # twice
        [place(5, *WHOLE), place(0, 5)],  # the wrong way round
        [place(1, *WHOLE)],
        [place(0, WHOLE[0] + 1, WHOLE[1])],
        [place(0, WHOLE[0], WHOLE[1] - 1)],
        [place(0, 5, 4), place(5, *WHOLE)],  # a part of the updates belongs to nobody
        [],
    ],
)
def test_what_is_not_one_whole_is_refused(wrong: list[ServerPlace]) -> None:
    with pytest.raises(MessageError):
        parts_of(wrong, PROGRAM, "fp32", host="192.0.2.1")


def test_a_host_far_away_has_no_server_in_our_own_network() -> None:
    near = ServerPlace(
        address="192.168.1.1:8711", token="", start=0, stop=WHOLE[0], update_stop=WHOLE[1]
    )
    with pytest.raises(NotDialled, match=r"its parameters are at 192\.168\.1\.1"):
        parts_of([near], PROGRAM, "fp32", host="8.8.8.8")


def test_a_server_anywhere_is_where_the_host_is() -> None:
    only = ServerPlace(
        address="0.0.0.0:8711", token="", start=0, stop=WHOLE[0], update_stop=WHOLE[1]
    )
    (part,) = parts_of([only], PROGRAM, "fp32", host="2001:db8::7")
    assert (part.host, part.port, part.address) == ("2001:db8::7", 8711, "[2001:db8::7]:8711")


def test_a_machine_is_an_address_without_its_port() -> None:
    assert [machine_of(a) for a in ("a.b:1", "[::1]:80", "10.0.0.1:9")] == ["a.b", "::1",
                                                                         "10.0.0.1"]  # fmt: skip
