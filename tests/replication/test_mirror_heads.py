"""Heads of HTTP answers: understood, or refused with words; never anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.replication.mirrors.head import Head, parse_head


def test_a_head_as_servers_send_it() -> None:
    raw = (
        b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Mon, 01 Jan 2035 00:00:00 GMT\r\n"
        b'content-length:  1234 \r\nETag: "a:b"\r\nX-Odd: \xe4\r\nX-Empty:\r\n\r\n'
    )
    assert parse_head(raw) == Head(status=200, length=1234, coding="", location="", keep=True)


@pytest.mark.parametrize(
    ("raw", "keep"),
    [
        (b"HTTP/1.1 404 Not Found", True),
        (b"HTTP/1.1 404", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Foo, Close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive", True),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nConnection: close", False),
    ],
)
def test_whether_a_connection_is_kept(raw: bytes, keep: bool) -> None:
    assert parse_head(raw).keep == keep


@pytest.mark.parametrize(
    ("fields", "coding"),
    [
        (b"Content-Encoding: gzip", "gzip"),
        (b"Content-Encoding: identity", ""),
        (b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked", "chunked, gzip"),
        (b"Transfer-Encoding: gzip, chunked", "gzip, chunked"),
    ],
)
def test_how_a_body_is_packed(fields: bytes, coding: str) -> None:
    assert parse_head(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n").coding == coding


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\n\r\n",
        b"HTTP/2 200 OK",
        b"HTTP/1.1 100 Continue",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1  200 OK",
        b"ICY 200 OK",
        b"HTTP/1.1 200 OK\r\n goes on",
        b"HTTP/1.1 200 OK\r\nName : value",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x5",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        b"HTTP/1.1 302 Found\r\nLocation: /a\r\nLocation: /b",
    ],
)
def test_what_is_no_head_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"\bits? "):
        parse_head(raw)


WORDS = st.sampled_from(
    [b"HTTP/1.1", b" ", b"200", b"302", b"OK", b"\r\n", b"\n", b"\r", b":", b"Content-Length",
     b"Transfer-Encoding", b"Location", b"Connection", b"close", b"chunked", b"17", b"-1", b"\0"]
)  # fmt: skip


@given(raw=st.binary(max_size=200) | st.lists(WORDS | st.binary(max_size=4)).map(b"".join))
def test_whatever_comes_it_is_understood_or_refused(raw: bytes) -> None:
    for text in (raw, b"HTTP/1.1 200 OK\r\n" + raw):
        with contextlib.suppress(ValueError):
            found = parse_head(text)
            assert 200 <= found.status < 600
            assert found.length is None or 0 <= found.length < 10**18
            assert not set("\r\n\0") & set(found.location + found.coding)
