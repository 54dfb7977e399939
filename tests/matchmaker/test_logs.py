"""The log: one line for each thing that happened, and nothing in it that is nobody's business."""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.errors import TurnedAway
from crowdgrad.matchmaker.logs import OURS, Sparing, clean, log_event, logging_as
from crowdgrad.net import introduction, signing
from crowdgrad.net.identity import guest

logger = logging.getLogger(f"{OURS}.tests")
ANN = guest("ann")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A root handler of our own, as the command line installs one."""
    root, written = logging.getLogger(), io.StringIO()
    before, root.handlers = root.handlers, [logging.StreamHandler(written)]
    try:
        yield written
    finally:
        root.handlers = before


def told(stream: io.StringIO, style: str, **fields: object) -> str:
    with logging_as(style):
        log_event(logger, "joined", **fields)
    return stream.getvalue()


def test_json_lines_have_time_level_event_and_fields(stream: io.StringIO) -> None:
    line = told(stream, "json", volunteer="a3f5c2d4e6b80917", waited_s=1.5, again=True, job=None)
    assert line.count("\n") == 1
    said = json.loads(line)
    assert said["time"].endswith("Z")
    assert (said["level"], said["event"]) == ("INFO", "joined")
    assert said["fields"] == {
        "volunteer": "a3f5c2d4e6b80917", "waited_s": 1.5, "again": True, "job": None,
    }  # fmt: skip


def test_text_lines_say_the_same(stream: io.StringIO) -> None:
    line = told(stream, "text", volunteer="a3f5c2d4e6b80917", waited_s=1.5)
    assert line.endswith(" INFO joined volunteer=a3f5c2d4e6b80917 waited_s=1.5\n")


def test_unless_asked_only_troubles_are_told(stream: io.StringIO) -> None:
    with logging_as(None):
        log_event(logger, "joined")
        assert stream.getvalue() == ""
        log_event(logger, "store trouble", why="the disk is full")
    assert "WARNING store trouble why=the disk is full" in stream.getvalue()


def test_afterwards_the_log_is_as_it_was(stream: io.StringIO) -> None:
    with logging_as("json"):
        pass
    log_event(logger, "joined")
    logger.warning("plain")
    assert stream.getvalue() == "plain\n"


@pytest.mark.parametrize("style", ["text", "json"])
def test_secrets_never_appear_wherever_they_stand(stream: io.StringIO, style: str) -> None:
    proof = signing.sign(
        ANN, method="GET", authority="x", path="/", body=b"", time_ms=1,
        random_bytes=secrets.token_bytes,
    )  # fmt: skip
    note = introduction.write(
        ANN,
        introduction.Introduction(job="j", host="h", volunteer="v", position=1, written_at=1.0),
    )
    database = "postgresql://matchmaker:p@ss/w0rd@db.example.org/crowdgrad"
    header = signing.to_header(proof)
    forbidden = [
        proof.signature, proof.nonce, proof.key, note, note.partition(".")[2], "p@ss", "w0rd",
        "hunter2", "203.0.113.77", "2001:db8:1:2:3::77",
    ]  # fmt: skip
    with logging_as(style):
        log_event(
            logger, "refused", signature=proof.signature, Nonce="abc", introduction="x.y",
            database=database, why=f"{header} did not fit", note=note, url=database,
            said=f'{{"nonce": "{proof.nonce}", "signature": "{proof.signature}"}}',
            address="203.0.113.77", peer="[2001:db8:1:2:3::77]:4711", password="hunter2",
            text="password=hunter2 from 203.0.113.77:1234, 2001:db8:1:2:3::77",
        )  # fmt: skip
        logger.warning("connection to %s failed: token: hunter2", database)
        try:
            raise TurnedAway(f"{database} {note} {proof.signature} from 203.0.113.77")
        except TurnedAway:
            logger.exception("trouble with %s", header)
    written = stream.getvalue()
    for secret in forbidden:
        assert secret not in written, secret
    for kept in ("203.0.113.0/24", "2001:db8:1::/48", "db.example.org/crowdgrad", "TurnedAway"):
        assert kept in written, kept


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1:8700 and 192.168.1.7", "127.0.0.1:8700 and 192.168.1.7"),
        ("::1, fe80::1 and fd00::5", "::1, fe80::1 and fd00::5"),
        ("198.51.100.9", "198.51.100.0/24"),
        ("::ffff:198.51.100.9", "198.51.100.0/24"),
        ("at 12:34:56 on 2026-01-31", "at 12:34:56 on 2026-01-31"),
        ("crowdgrad 0.1.0", "crowdgrad 0.1.0"),
        ("key a3f5c2d4e6b80917", "key a3f5c2d4e6b80917"),
        ("code K7Q-2MP", "code K7Q-2MP"),
        ("https://match.example.org/j/K7Q-2MP", "https://match.example.org/j/K7Q-2MP"),
        ("a\nb\r\x1b[2J\u202ec", "a b [2J c"),
    ],
)
def test_what_may_be_seen_is_seen(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_a_hosts_address_is_told_to_members_not_to_the_log(stream: io.StringIO) -> None:
    line = told(stream, "text", address="my-house.example.org:8710", host_address="10.0.0.1:8710")
    assert "my-house" not in line
    assert "host_address=10.0.0.1:8710" in line


@given(st.text(max_size=300))
def test_whatever_strangers_say_stays_one_short_line(text: str) -> None:
    shown = clean(text)
    assert len(shown) <= 1000
    assert len(shown.splitlines()) <= 1
    assert "\x1b" not in shown


def test_long_texts_and_many_fields_are_cut(stream: io.StringIO) -> None:
    line = told(stream, "json", text="x y " * 100_000, **{f"f{n}": n for n in range(1000)})
    assert len(line) < 5000


def test_what_happens_very_often_is_told_now_and_then() -> None:
    now = [0.0]
    sparing = Sparing(3, clock=lambda: now[0])

    def told(event: str) -> int | None:
        record = logging.makeLogRecord({"msg": "%s", "event": event})
        return record.unsaid if sparing.filter(record) else None

    assert [told("refused") for _ in range(10)] == [0, 0, 0, *[None] * 7]
    assert told("joined") == 0, "each kind for itself"
    now[0] = 1.0
    assert [told("refused") for _ in range(2)] == [7, 0]


def test_how_many_were_left_out_is_in_the_line(stream: io.StringIO) -> None:
    with logging_as("json"):
        logging.getLogger().handlers[0].addFilter(
            lambda record: setattr(record, "unsaid", 5) or True
        )
        log_event(logger, "refused", status=429)
    assert json.loads(stream.getvalue())["fields"] == {"status": 429, "unsaid": 5}
