"""Every message says its sentence, survives the journey, and nonsense is refused."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.domain.job import MAX_SERVERS
from crowdgrad.domain.spreading import MAX_CHUNKS, MAX_NEIGHBOURS, MAX_SET_BYTES, Flow
from crowdgrad.domain.work import MAX_COUNT
from crowdgrad.errors import CrowdgradError, DataAltered, MessageError, PeerError, TurnedAway, tree
from crowdgrad.net import messages
from crowdgrad.net.messages import (
    MAX_BODY_BYTES,
    MAX_CHUNKS_NAMED,
    MAX_SHARDS_NAMED,
    MAX_WORDS,
    MESSAGES,
    Exchange,
    Feed,
    Have,
    Heartbeat,
    Holds,
    Join,
    Message,
    Problem,
    Welcome,
    check_words,
    decode,
    encode,
    expect,
    problem,
    told,
)
from tests.net.message_examples import EXAMPLES, HASH, printable
from tests.net.message_examples import messages as any_message

PLACE = {"address": "a:1", "token": "t", "start": 0, "stop": 10, "update_stop": 8}
KINDS = [message.kind for message in MESSAGES]


def example_of(name: str) -> Message:
    return next(example for example in EXAMPLES if type(example).__name__ == name)


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
    who, _, said = sentence.partition(": ")
    assert said
    assert who.partition(",")[0] in {
        "Dialler", "Listener", "Either", "Volunteer", "Host", "Server", "Relay"
    }  # fmt: skip
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


JOIN = msgspec.to_builtins(example_of("Join"), builtin_types=(bytes,))
NEIGHBOUR: dict[str, object] = {"position": 1, "id": "a1", "routes": []}
WELCOME = {"protocol": (2, 1), "software": "x", "challenge": b"c" * 32}
NONSENSE = [
    ("Hello", {"protocol": (2, 1), "software": "x", "challenge": b"c" * 31}),
    ("Hello", {"protocol": (2, 1), "software": "x", "challenge": b"c" * 4096}),
    ("Welcome", {**WELCOME, "challenge": b"c" * 4096}),
    ("Welcome", {**WELCOME, "key": b"k" * 32}),
    ("Welcome", {**WELCOME, "signature": b"s" * 64}),
    ("Welcome", {**WELCOME, "key": b"k" * 33, "signature": b"s" * 64}),
    ("Welcome", {**WELCOME, "name": "\x1b[2J"}),
    ("Welcome", {**WELCOME, "name": "n" * 65}),
    ("Join", {**JOIN, "introduction": "i" * 1025}),
    ("Join", {**JOIN, "introduction": 7}),
    ("Get", {"hash": 5}),
    ("Grant", {"unit": {"id": -1, "kind": "train", "epoch": 0, "shard": 0, "first_batch": 0,
                        "batches": 1}, "base": {"incarnation": 0, "count": 0}, "rate": 0.1}),
    ("Grant", {"unit": {"id": 1, "kind": "mine bitcoin", "epoch": 0, "shard": 0, "first_batch": 0,
                        "batches": 1}, "base": {"incarnation": 0, "count": 0}, "rate": 0.1}),
    ("Grant", {"unit": {"id": 1, "kind": "train", "epoch": 0, "shard": 0, "first_batch": 0,
                        "batches": 1}, "base": {"incarnation": 0, "count": -1}, "rate": 0.1}),
    ("Exchange", {"update": {"unit": 1, "base": {"incarnation": 0, "count": 0}, "samples": 0,
                             "loss": 0.0, "metrics": {}, "compute_s": 0.0}}),
    ("RosterChanged", {"roster": {"job": "a", "members": [
        {"position": 1, "id": "a", "name": "a"}, {"position": 1, "id": "b", "name": "b"}]}}),
    ("RosterChanged", {"roster": {"job": "a", "members": [{"position": 1, "id": "a",
                                                           "name": "\x1b[2J"}]}}),
    ("Wait", {"reason": "", "seconds": float("nan")}),
    ("Wait", {"reason": "", "seconds": -1.0}),
    ("Exchange", {"shards": [0] * (MAX_SHARDS_NAMED + 1)}),
    ("Fetch", {"ticket": "now"}),
    ("Fresh", {"ticket": 1}),
    ("Fresh", {"base": {"incarnation": -1, "count": 0}}),
    ("Enter", {"volunteer": "a b", "token": ""}),
    ("Enter", {"volunteer": "", "token": ""}),
    ("Enter", {"volunteer": "a1", "token": "t" * 65}),
    ("Enter", {"volunteer": "a1", "token": "\x1b"}),
    ("Enter", {"volunteer": "a1", "token": "", "admission": -1}),
    ("Dismiss", {"volunteer": "a b", "admission": 1}),
    ("Dismiss", {"volunteer": "a1", "admission": -1}),
    ("Push", {"unit": -1, "granted": {"incarnation": 0, "count": 0}}),
    ("Push", {"unit": 1 << 63, "granted": {"incarnation": 0, "count": 0}}),
    ("Push", {"unit": 1}),
    ("Push", {"granted": {"incarnation": 0, "count": 0}}),
    ("Push", {"lane": -1}),
    ("Push", {"lane": 64}),
    ("Push", {"link": -1}),
    ("Pulled", {"ticket": 1}),
    ("TakeCharge", {"job": "digits-1", "proof": b"p" * 31}),
    ("TakeCharge", {"job": "", "proof": b"p" * 32}),
    ("TakeCharge", {"job": "j" * 65, "proof": b"p" * 32}),
    ("InCharge", {"proof": b""}),
    ("Staged", {"push": 1, "volunteer": "a1", "unit": -1, "sound": True, "incarnation": 0}),
    ("Staged", {"push": 1, "volunteer": "../x", "unit": 1, "sound": True, "incarnation": 0}),
    ("Staged", {"push": -1, "volunteer": "a1", "unit": 1, "sound": True, "incarnation": 0}),
    ("Staged", {"push": 1, "volunteer": "a1", "unit": 1, "sound": True, "incarnation": -1}),
    ("Refuse", {"push": 1 << 63}),
    ("ApplyMerged", {"version": {"incarnation": 0, "count": 0}, "rate": float("nan")}),
    ("ApplyMerged", {"version": {"incarnation": 0, "count": 0}, "rate": -1.0}),
    ("Kept", {"ticket": 1, "version": {"incarnation": 0, "count": 0}, "sound": True,
              "steps": -1}),
    ("GoBack", {"version": {"incarnation": 0, "count": 0}, "numbers": {"n" * 65: 1.0}}),
    ("GoBack", {"version": {"incarnation": 0, "count": 0},
                "numbers": {str(i): 1.0 for i in range(65)}}),
    ("Shares", {"port": -1}),
    ("Shares", {"port": 1 << 16}),
    ("Shares", {"port": 1, "addresses": ["192.0.2.7:1"] * 9}),
    ("Shares", {"port": 1, "addresses": ["nowhere"]}),
    ("Neighbours", {"neighbours": [NEIGHBOUR] * (MAX_NEIGHBOURS + 1)}),
    ("Neighbours", {"order": [1] * (MAX_NEIGHBOURS + 1)}),
    ("Neighbours", {"neighbours": [NEIGHBOUR | {"position": -1}]}),
    ("Neighbours", {"neighbours": [NEIGHBOUR | {"routes": ["192.0.2.7:0"]}]}),
    ("Neighbours", {"neighbours": [NEIGHBOUR | {"routes": ["192.0.2.7:1"] * 9}]}),
    ("Neighbours", {"shards": [[4, 3]]}),
    ("Neighbours", {"shards": [[-1, 3]]}),
    ("Neighbours", {"shards": [[0, 1, 2]]}),
    ("Neighbours", {"shards": [[0, 1]] * (MAX_SHARDS_NAMED + 1)}),
    ("Feed", {"until": -1}),
    ("Feed", {"until": 1 << 63}),
    ("Feed", {"until": 1, "wants": b"x" * (MAX_SET_BYTES + 1)}),
    ("Feed", {"until": 1, "urgent": [0] * (MAX_CHUNKS_NAMED + 1)}),
    ("Feed", {"until": 1, "urgent": [MAX_CHUNKS]}),
    ("Holds", {"chunks": [-1]}),
    ("Holds", {"lost": [MAX_CHUNKS]}),
    ("Holds", {"whole": b"x" * (MAX_SET_BYTES + 1)}),
    ("Holds", {"flows": [{"position": 1}] * (MAX_CHUNKS_NAMED + 1)}),
    ("Holds", {"flows": [{"position": 1, "bad": -1}]}),
    ("Meet", {"job": "", "key": b"k" * 32, "signature": b"s" * 64}),
    ("Meet", {"job": "digits-1", "key": b"k" * 31, "signature": b"s" * 64}),
    ("Meet", {"job": "digits-1", "key": b"k" * 32, "signature": b""}),
    ("Have", {"chunks": [0] * (MAX_CHUNKS_NAMED + 1)}),
    ("Have", {"lost": [-1]}),
    ("Have", {"whole": b"x" * (MAX_SET_BYTES + 1)}),
    ("Unget", {"hash": 5}),
    ("Lack", {"hash": "0" * 64}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), NONSENSE)
def test_what_makes_no_sense_is_refused_by_name(name: str, content: dict[str, object]) -> None:
    kind = next(message.kind for message in MESSAGES if message.__name__ == name)
    with pytest.raises(MessageError, match=f"{name} message does not make sense"):
        decode(kind, msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "change", [{"heartbeat_s": 0.0}, {"heartbeat_s": 0.049}, {"heartbeat_s": float("nan")},
               {"heartbeat_s": -2.0}, {"silence_s": 3.0}, {"silence_s": float("inf")},
               {"position": -1}, {"program_bytes": -5}, {"manifest_bytes": -1}],
)  # fmt: skip
def test_a_host_cannot_ask_for_a_senseless_rhythm_or_place(change: dict[str, object]) -> None:
    admit = example_of("Admit")
    content = msgspec.to_builtins(admit, builtin_types=(bytes,)) | change
    with pytest.raises(MessageError, match="Admit"):
        decode(admit.kind, msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    "change", [{"rate": float("nan")}, {"rate": float("inf")}, {"rate": -0.1}, {"rate": None},
               {"rate": "fast"}, {"link": -1}, {"link": 0.5}],
)  # fmt: skip
def test_a_unit_is_not_granted_at_a_senseless_rate_or_link(change: dict[str, object]) -> None:
    grant = example_of("Grant")
    content = msgspec.to_builtins(grant)
    assert decode(grant.kind, msgspec.msgpack.encode(content)) == grant
    with pytest.raises(MessageError, match="Grant message does not make sense"):
        decode(grant.kind, msgspec.msgpack.encode(content | change))


def test_a_unit_is_granted_with_its_rate_and_starts_a_chain_unless_it_says_otherwise() -> None:
    content = msgspec.to_builtins(example_of("Grant"))
    del content["link"]
    assert decode(10, msgspec.msgpack.encode(content)).link == 0  # type: ignore[attr-defined]
    del content["rate"]
    with pytest.raises(MessageError, match="rate"):
        decode(10, msgspec.msgpack.encode(content))


@pytest.mark.parametrize(
    ("name", "change"), [
        ("Apply", {"rate": float("inf")}), ("Apply", {"batches": 0}), ("Apply", {"under_way": -1}),
        ("Apply", {"push": -1}), ("Merge", {"samples": 0}), ("Merge", {"batches": 0}),
        ("Merge", {"push": -1}), ("Equip", {"patience": float("nan")}), ("Equip", {"decay": -1.0}),
        ("Equip", {"publish_every": 0}), ("Equip", {"heartbeat_s": 0.0}),
        ("Equip", {"silence_s": 1e9}), ("Admit", {"servers": [PLACE] * (MAX_SERVERS + 1)}),
        ("Admit", {"servers": [PLACE | {"address": "nowhere"}]}),
        ("Admit", {"servers": [PLACE | {"address": ":1"}]}),
        ("Admit", {"servers": [PLACE | {"address": "a:99999"}]}),
        ("Admit", {"servers": [PLACE | {"address": "a" * 300 + ":1"}]}),
        ("Admit", {"servers": [PLACE | {"address": "\x1b:1"}]}),
        ("Admit", {"servers": [PLACE | {"token": "t" * 65}]}),
        ("Admit", {"servers": [PLACE | {"start": -1}]}),
        ("Admit", {"servers": [PLACE | {"start": 8}]}),
        ("Admit", {"servers": [PLACE | {"update_stop": 11}]}),
    ],
)  # fmt: skip
def test_what_is_said_of_servers_and_to_them_makes_sense(
    name: str, change: dict[str, object]
) -> None:
    example = example_of(name)
    content = msgspec.to_builtins(example, builtin_types=(bytes,))
    assert decode(example.kind, msgspec.msgpack.encode(content)) == example
    with pytest.raises(MessageError, match=f"{name} message does not make sense"):
        decode(example.kind, msgspec.msgpack.encode(content | change))


LOCAL_NONSENSE: list[dict[str, object]] = [
    {"batch_size": 0}, {"fetch_every": 3}, {"fetch_every": -8}, {"returns": "secrets"},
    {"growth": 0.5}, {"growth": float("nan")}, {"clip": -1.0}, {"overlap": 99},
    {"rule": {"name": "", "settings": {}}}, {"rule": {"name": "../x", "settings": {}}},
    {"rule": {"name": "sgd", "settings": {"lr": float("nan")}}},
    {"rule": {"name": "sgd", "settings": {f"s{i}": 1.0 for i in range(17)}}},
]  # fmt: skip


@pytest.mark.parametrize("change", LOCAL_NONSENSE, ids=str)
def test_a_host_cannot_ask_for_senseless_local_steps(change: dict[str, object]) -> None:
    admit = example_of("Admit")
    content = msgspec.to_builtins(admit, builtin_types=(bytes,))
    content["job"]["local"] |= change
    with pytest.raises(MessageError, match="Admit message does not make sense"):
        decode(admit.kind, msgspec.msgpack.encode(content))


def test_the_fastest_rhythm_and_the_most_shards_are_allowed() -> None:
    content = msgspec.to_builtins(example_of("Admit"), builtin_types=(bytes,)) | {
        "heartbeat_s": 0.05,
        "silence_s": 0.1,
    }
    assert decode(5, msgspec.msgpack.encode(content)).heartbeat_s == 0.05  # type: ignore[attr-defined]
    most = Exchange(shards=tuple(range(MAX_SHARDS_NAMED)))
    assert decode(most.kind, encode(most)) == most


@pytest.mark.parametrize("text", ["two\nlines", "\x1b[2J", "x" * 121], ids=repr)
@pytest.mark.parametrize("key", ["title", "cause"])
def test_a_jobs_title_and_cause_are_fit_for_a_screen(key: str, text: str) -> None:
    content = msgspec.to_builtins(example_of("Admit"), builtin_types=(bytes,))
    content["job"][key] = text
    with pytest.raises(MessageError, match="Admit message does not make sense") as refused:
        decode(5, msgspec.msgpack.encode(content))
    assert text not in refused.value.message


SPOKEN = [
    ("Grant", "verdict"), ("Wait", "reason"), ("Wait", "verdict"), ("GiveBack", "reason"),
    ("Leave", "reason"), ("Finished", "reason"), ("Lack", "reason"),
]  # fmt: skip
UNFIT = [
    "two\nlines", "a\rb", "\x1b[2Jgone", "tab\there", "nul\0", "\x7f", "\x9b31m",
    "\u202eright to left", "\u2028", "x" * (MAX_WORDS + 1),
]  # fmt: skip


def with_words(name: str, key: str, text: str) -> tuple[Message, bytes]:
    """The example of that message, and its body with other words in it."""
    message = example_of(name)
    content = msgspec.to_builtins(message, builtin_types=(bytes,))
    assert key in content
    return message, msgspec.msgpack.encode(content | {key: text})


@pytest.mark.parametrize("text", UNFIT, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize(("name", "key"), SPOKEN)
def test_words_unfit_for_a_screen_are_refused(name: str, key: str, text: str) -> None:
    message, body = with_words(name, key, text)
    with pytest.raises(MessageError, match=f"{name} message does not make sense") as refused:
        decode(message.kind, body)
    assert text not in refused.value.message
    with pytest.raises(ValueError, match=f"one printable line of at most {MAX_WORDS}"):
        msgspec.structs.replace(message, **{key: text})


@pytest.mark.parametrize(("name", "key"), SPOKEN)
def test_as_many_words_as_allowed_arrive(name: str, key: str) -> None:
    text = "é 中😀 “quoted”" + "x" * MAX_WORDS
    message, body = with_words(name, key, text[:MAX_WORDS])
    assert getattr(decode(message.kind, body), key) == text[:MAX_WORDS]


@given(printable())
def test_words_fit_for_a_screen_pass(text: str) -> None:
    check_words("", text)


@given(printable(MAX_WORDS - 1), st.characters(categories=("C", "Z")).filter(lambda c: c != " "))
def test_one_unfit_character_spoils_words(text: str, spoiler: str) -> None:
    half = len(text) // 2
    with pytest.raises(ValueError, match="one printable line"):
        check_words("fine", text[:half] + spoiler + text[half:])


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
    said = problem(TurnedAway("The job is over.", advice="Choose another."))
    assert expect(said, Problem) is said
    with pytest.raises(TurnedAway, match=r"The other side says: The job is over\.") as refused:
        expect(said, Join)
    assert refused.value.advice == "Choose another."


@pytest.mark.parametrize("kind", tree(PeerError), ids=lambda kind: kind.__name__)
def test_a_problem_is_told_as_the_error_its_code_names(kind: type[CrowdgradError]) -> None:
    heard = told(problem(kind("It broke.", advice="Mend it.")))
    assert type(heard) is kind
    assert heard.message == "The other side says: It broke."
    assert heard.advice == "Mend it."


@pytest.mark.parametrize("code", ["", "CG999", "cg506", DataAltered.code, CrowdgradError.code])
def test_a_code_that_is_no_peers_is_told_as_a_plain_peer_error(code: str) -> None:
    heard = told(Problem(code=code, message="It broke."))
    assert type(heard) is PeerError
    assert heard.message == "The other side says: It broke."


def test_words_of_any_length_fit_into_a_problem_and_out_of_it() -> None:
    said = problem(DataAltered("x" * 5_000_000, advice="y" * 5_000_000))
    assert len(encode(said)) < 5000
    with pytest.raises(PeerError) as refused:
        expect(Problem(code="z" * 10_000, message="x" * 10_000, advice="y" * 10_000), Join)
    assert type(refused.value) is PeerError
    assert "x" * MAX_WORDS in str(refused.value)
    assert len(str(refused.value)) < 2 * MAX_WORDS + 100


def test_a_problem_full_of_terminal_commands_is_shown_without_them() -> None:
    said = Problem(code="CG506", message="a\x1b[2J\nb", advice="c\r\x07d")
    assert str(told(said)) == "[CG506] The other side says: a [2J b c d"


def test_the_most_that_may_be_said_of_chunks_fits_into_a_body() -> None:
    named = tuple(range(MAX_CHUNKS - MAX_CHUNKS_NAMED, MAX_CHUNKS))
    everything = b"\xff" * MAX_SET_BYTES
    flow = Flow(position=MAX_COUNT - 1, received=MAX_COUNT - 1, wasted=MAX_COUNT - 1, bad=1 << 32)
    for said in (
        Feed(until=MAX_COUNT - 1, wants=everything, urgent=named),
        Have(chunks=named, lost=named, whole=everything),
        Holds(chunks=named, lost=named, whole=everything, flows=(flow,) * MAX_CHUNKS_NAMED),
    ):
        assert len(encode(said)) <= MAX_BODY_BYTES
        assert decode(said.kind, encode(said)) == said


def test_a_host_of_the_last_protocol_says_nothing_of_spreading() -> None:
    admit = example_of("Admit")
    content = msgspec.to_builtins(admit, builtin_types=(bytes,))
    del content["spreading"]
    assert decode(admit.kind, msgspec.msgpack.encode(content)).spreading is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "spreading", [{"plan": "gossip"}, {"plan": "tree", "share": "needed"}, {"mirrors": ["a"] * 9},
                  {"mirrors": ["\x1b"]}, {"mirrors": ["a" * 501]}, "swarm"],
)  # fmt: skip
def test_data_does_not_spread_in_senseless_ways(spreading: object) -> None:
    admit = example_of("Admit")
    content = msgspec.to_builtins(admit, builtin_types=(bytes,)) | {"spreading": spreading}
    with pytest.raises(MessageError, match="Admit"):
        decode(admit.kind, msgspec.msgpack.encode(content))


def test_hashes_travel_as_they_are() -> None:
    assert decode(7, msgspec.msgpack.encode({"hash": HASH})).hash == HASH  # type: ignore[attr-defined]


def test_what_the_other_side_says_is_fit_for_a_screen() -> None:
    """A Problem is repeated by people's terminals, whatever is in it."""
    error = told(Problem(code="CG500", message="\x1b[2Jgone\nand " * 99, advice="\x07" * 999))
    assert error.message.isprintable()
    assert error.message.startswith("The other side says: [2Jgone and")
    assert len(error.message) < 600
    assert error.advice == ""


def test_a_volunteer_of_the_last_protocol_brings_no_introduction() -> None:
    old = {name: value for name, value in JOIN.items() if name != "introduction"}
    join = decode(Join.kind, msgspec.msgpack.encode(old))
    assert isinstance(join, Join)
    assert join.introduction == ""
