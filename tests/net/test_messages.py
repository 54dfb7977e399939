"""Every message says its sentence, survives the journey, and nonsense is refused."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import DataAltered, MessageError, TurnedAway
from crowdgrad.net import messages
from crowdgrad.net.messages import (
    MESSAGES,
    Exchange,
    Heartbeat,
    Join,
    Message,
    Problem,
    Welcome,
    decode,
    encode,
    expect,
    problem,
)
from tests.net.message_examples import EXAMPLES, HASH
from tests.net.message_examples import messages as any_message

KINDS = [message.kind for message in MESSAGES]


def test_there_is_an_example_of_every_message() -> None:
    assert tuple(type(example) for example in EXAMPLES) == MESSAGES


def test_every_message_in_the_file_is_listed_with_a_kind_of_its_own() -> None:
    defined = [
        kind
        for kind in vars(messages).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
    ]
    assert defined == list(MESSAGES)
    assert len(set(KINDS)) == len(KINDS)
    assert all(0 < kind < 1 << 16 for kind in KINDS)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.__name__)
def test_every_message_is_one_sentence_one_side_says(message: type[Message]) -> None:
    sentence = message.__doc__ or ""
    assert sentence.startswith(("Dialler: ", "Listener: ", "Either: ", "Volunteer: ", "Host: "))
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))


@given(any_message)
def test_what_is_encoded_is_decoded(message: Message) -> None:
    assert decode(message.kind, encode(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_what_a_newer_peer_says_besides_is_passed_over(message: Message) -> None:
    more = msgspec.to_builtins(message, builtin_types=(bytes,)) | {"of_tomorrow": [1, {"a": None}]}
    assert decode(message.kind, msgspec.msgpack.encode(more)) == message


@given(st.sampled_from([*KINDS, 0, 999, 65535]), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(kind: int, body: bytes) -> None:
    with contextlib.suppress(MessageError):
        assert decode(kind, body).kind == kind


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_message_is_a_message_or_refused(message: Message, data: st.DataObject) -> None:
    body = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    del body[data.draw(st.integers(0, len(body))) :]
    with contextlib.suppress(MessageError):
        assert decode(message.kind, body).kind == message.kind


NONSENSE = [
    ("Get", {"hash": 5}),
    ("Grant", {"unit": {"id": -1, "kind": "train", "epoch": 0, "shard": 0, "first_batch": 0,
                        "batches": 1}, "base": {"incarnation": 0, "count": 0}}),
    ("Grant", {"unit": {"id": 1, "kind": "mine bitcoin", "epoch": 0, "shard": 0, "first_batch": 0,
                        "batches": 1}, "base": {"incarnation": 0, "count": 0}}),
    ("Grant", {"unit": {"id": 1, "kind": "train", "epoch": 0, "shard": 0, "first_batch": 0,
                        "batches": 1}, "base": {"incarnation": 0, "count": -1}}),
    ("Exchange", {"update": {"unit": 1, "base": {"incarnation": 0, "count": 0}, "samples": 0,
                             "loss": 0.0, "metrics": {}, "compute_s": 0.0}}),
    ("RosterChanged", {"roster": {"job": "a", "members": [
        {"position": 1, "id": "a", "name": "a"}, {"position": 1, "id": "b", "name": "b"}]}}),
    ("RosterChanged", {"roster": {"job": "a", "members": [{"position": 1, "id": "a",
                                                           "name": "\x1b[2J"}]}}),
    ("Wait", {"reason": "", "seconds": float("nan")}),
    ("Wait", {"reason": "", "seconds": -1.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), NONSENSE)
def test_what_makes_no_sense_is_refused_by_name(name: str, content: dict[str, object]) -> None:
    kind = next(message.kind for message in MESSAGES if message.__name__ == name)
    with pytest.raises(MessageError, match=f"{name} message does not make sense"):
        decode(kind, msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "change", [{"heartbeat_s": 0.0}, {"silence_s": 3.0}, {"heartbeat_s": float("nan")},
               {"position": -1}, {"program_bytes": -5}],
)  # fmt: skip
def test_a_host_cannot_ask_for_a_senseless_rhythm_or_place(change: dict[str, object]) -> None:
    admit = next(example for example in EXAMPLES if type(example).__name__ == "Admit")
    content = msgspec.to_builtins(admit) | change
    with pytest.raises(MessageError, match="Admit"):
        decode(admit.kind, msgspec.msgpack.encode(content))


def test_a_short_body_that_announces_a_long_list_costs_no_memory() -> None:
    for count in (1 << 20, (1 << 32) - 1):
        body = b"\x81\xa6shards\xdd" + count.to_bytes(4, "big")
        with pytest.raises(MessageError):
            decode(Exchange.kind, body)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(MessageError):
        decode(Exchange.kind, b"\x81\xa1x" + b"\x91" * 100_000)


def test_a_kind_we_do_not_know_says_what_to_do() -> None:
    with pytest.raises(MessageError, match="kind 999") as refused:
        decode(999, b"\x80")
    assert "Update" in refused.value.advice


def test_expect_gives_the_message_or_says_what_came_instead() -> None:
    welcome = EXAMPLES[1]
    assert expect(welcome, Welcome) is welcome
    with pytest.raises(MessageError, match="Expected Join, got Heartbeat"):
        expect(Heartbeat(), Join)
    told = problem(TurnedAway("The job is over.", advice="Choose another."))
    with pytest.raises(MessageError, match=r"The job is over\. \(CG506\)") as refused:
        expect(told, Join)
    assert refused.value.advice == "Choose another."


def test_words_of_any_length_fit_into_a_problem_and_out_of_it() -> None:
    told = problem(DataAltered("x" * 5_000_000, advice="y" * 5_000_000))
    assert len(encode(told)) < 5000
    with pytest.raises(MessageError) as refused:
        expect(Problem(code="z" * 10_000, message="x" * 10_000, advice="y" * 10_000), Join)
    assert len(str(refused.value)) < 2000


def test_hashes_travel_as_they_are() -> None:
    assert decode(7, msgspec.msgpack.encode({"hash": HASH})).hash == HASH  # type: ignore[attr-defined]
