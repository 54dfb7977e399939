"""Addresses of mirrors: read strictly, and refused in words that tell no password."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdgrad.replication.mirrors import check_address
from crowdgrad.replication.mirrors.address import MAX_ADDRESS, STORES, WEB, Place, parse
from crowdgrad.replication.mirrors.store import STORES as PACKAGES


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "path"),
    [
        ("https://example.org", "https", "example.org", 443, ""),
        ("https://example.org/", "https", "example.org", 443, ""),
        ("HTTPS://Example.ORG/Data/p.prepared//", "https", "example.org", 443, "/Data/p.prepared"),
        ("http://10.0.0.7:8000/x", "http", "10.0.0.7", 8000, "/x"),
        ("http://[2001:DB8::7]:8000", "http", "2001:db8::7", 8000, ""),
        ("http://localhost:80", "http", "localhost", 80, ""),
        ("https://a_b.example-1.org/~me/@v1/a%20b,c", "https", "a_b.example-1.org", 443,
         "/~me/@v1/a%20b,c"),
        ("s3://my-bucket/people", "s3", "my-bucket", 0, "/people"),
        ("gs://my.bucket_1", "gs", "my.bucket_1", 0, ""),
        ("abfs://box@account1.dfs.core.windows.net/p", "abfs",
         "box@account1.dfs.core.windows.net", 0, "/p"),
    ],
)  # fmt: skip
def test_addresses(text: str, scheme: str, host: str, port: int, path: str) -> None:
    check_address(text)
    assert parse(text) == Place(scheme=scheme, host=host, port=port, path=path)
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "1 to 500 characters"),
        ("https://example.org/" + "a" * MAX_ADDRESS, "1 to 500 characters"),
        ("https://example.org/\nGET /", "letters, digits and signs"),
        ("https://exämple.org", "letters, digits and signs"),
        ("https://example.org/a b", "letters, digits and signs"),
        ("example.org/data", "begins with one of http://, https://, s3://, gs://, abfs://"),
        ("file:///etc/passwd", "begins with one of"),
        ("/etc/passwd", "begins with one of"),
        ("memory://x", "begins with one of"),
        ("ftp://me:secret@example.org", "begins with one of"),
        ("me:secret@example.org", "begins with one of"),
        ("simplecache::https://example.org", "begins with one of"),
        ("https://me:secret@example.org", "no user and no password"),
        ("https://secret@example.org", "no user and no password"),
        ("s3://key:secret@bucket", "no user and no password"),
        ("abfs://box:secret@account.dfs.core.windows.net", "no user and no password"),
        ("https://example.org/?token=secret", "nothing behind ? or #"),
        ("https://example.org?token=secret", "nothing behind ? or #"),
        ("ftp://example.org/?token=secret", "begins with one of"),
        ("https://example.org/#secret", "nothing behind ? or #"),
        ("https://", "not the address of a mirror"),
        ("https:///data", "not the address of a mirror"),
        ("https://.example.org", "not the address of a mirror"),
        ("https://example..org", "not the address of a mirror"),
        ("https://example.org.", "not the address of a mirror"),
        ("https://-example.org", "not the address of a mirror"),
        ("https://example.org:", "not the address of a mirror"),
        ("https://example.org:abc", "not the address of a mirror"),
        ("https://example.org:123456", "not the address of a mirror"),
        ("https://example.org\\evil", "not the address of a mirror"),
        ("https://example.org/a%2", "not the address of a mirror"),
        ("https://" + "a" * 64 + ".org", "not the address of a mirror"),
        ("https://" + "a." * 127 + "org", "not the address of a mirror"),
        ("https://[::1", "not the address of a mirror"),
        ("https://[1.2.3.4]", "at least 3 parts"),
        ("https://[fe80::1%25eth0]", "not the address of a mirror"),
        ("https://example.org:0", "port 80, 443 or one from 1024"),
        ("http://example.org:25", "port 80, 443 or one from 1024"),
        ("http://example.org:65536", "port 80, 443 or one from 1024"),
        ("s3://", "like s3://bucket/folder"),
        ("s3://arn:aws:s3:us-east-1:123:accesspoint/x", "like s3://bucket/folder"),
        ("s3://bucket:8000/x", "like s3://bucket/folder"),
        ("s3://a::file:///etc", "like s3://bucket/folder"),
        ("gs://Bucket/x", "like gs://bucket/folder"),
        ("abfs://box/x", "like abfs://container@account"),
        ("abfs://box@127.0.0.1/x", "like abfs://container@account"),
        ("abfs://box@account.dfs.core.windows.net.evil.org/x", "like abfs://container@account"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are looked at below
        check_address(text)
    assert words.lower() in str(caught.value).lower()
    assert "secret" not in str(caught.value)


SIGNS = string.ascii_letters + string.digits + "://.@?#[]%-_~\\ \n\0ä"
BEGINNINGS = st.sampled_from(["", *(f"{scheme}://" for scheme in (*WEB, *STORES, "file"))])
ENDS = st.sampled_from(["", "@account.dfs.core.windows.net", ":8000", "/x", "?a", "#a", "/.."])


@given(
    text=st.text(max_size=MAX_ADDRESS + 10)
    | st.tuples(BEGINNINGS, st.text(SIGNS, max_size=30), ENDS).map("".join)
)
def test_whatever_is_written_it_is_an_address_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        place = parse(text)
        assert place.scheme in (*WEB, *STORES)
        assert (place.port > 0) == (place.scheme in WEB)
        assert place.host
        assert not set(str(place)) & set("?# \r\n\0\\")
        assert "@" not in place.host or place.host.endswith(".core.windows.net")
        assert parse(str(place)) == place


def test_every_store_that_may_be_named_can_be_opened() -> None:
    assert set(PACKAGES) == set(STORES)
