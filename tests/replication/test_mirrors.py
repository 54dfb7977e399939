"""Mirrors: what they have comes, whatever else they do is an error in words, and nobody is led in.

The servers are real ones on loopback. Where a mirror must be somewhere on the internet, only the
last step is played: what was judged and would be dialled is noted, and the same server answers.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from crowdgrad.domain.data import MAX_CHUNK_BYTES, ChunkHash
from crowdgrad.errors import (
    CrowdgradError,
    DataAltered,
    DataMalformed,
    DataMissing,
    NotDialled,
    Unreachable,
)
from crowdgrad.replication.mirrors import HttpMirror, StoreMirror, mirror_of
from crowdgrad.replication.mirrors.address import Place
from crowdgrad.replication.mirrors.base import Mirror
from crowdgrad.replication.mirrors.head import MAX_HEAD_BYTES
from crowdgrad.replication.mirrors.http import MAX_IDLE, MAX_REDIRECTS, Streams
from crowdgrad.replication.mirrors.http import connect as really_connect
from tests.net.certificates import certificate
from tests.replication.one_chunk import DATA, FILE, NAME, SIZE, failure, fetch
from tests.replication.web import Answer, Scripted, serving, serving_files

HERE = "127.0.0.1"


def published(folder: Path, chunks: list[bytes]) -> list[ChunkHash]:
    names = []
    for data in chunks:
        name = ChunkHash(hashlib.sha256(data).hexdigest())
        path = folder / "chunks" / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        names.append(name)
    return names


def answering(answer: Answer, *, within_s: float = 30.0, keep: bool = True) -> CrowdgradError:
    """What comes of asking such a server."""
    with serving(answer, keep=keep) as web:
        return failure(HttpMirror(web.url, host=HERE, within_s=within_s))


def head(status: str = "200 OK", *fields: str, length: int | None = SIZE) -> bytes:
    lines = [f"HTTP/1.1 {status}", *fields]
    lines += [f"Content-Length: {length}"] if length is not None else []
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def right(server: Scripted) -> None:
    server.send(head() + DATA)


# -- web servers that do as they should --------------------------------------------------------


def test_a_published_folder_is_a_mirror(tmp_path: Path) -> None:
    chunks = [bytes([n]) * (n * 1000 + 1) for n in range(20)] + [bytes(MAX_CHUNK_BYTES)]
    names = published(tmp_path / "people.prepared", chunks)

    async def main(mirror: Mirror) -> list[bytes]:
        found = [
            await mirror.get(name, len(data)) for name, data in zip(names, chunks, strict=True)
        ]
        mirror.close()
        return found

    with serving_files(tmp_path) as web:
        mirror = mirror_of(f"{web.url}/people.prepared/", host=HERE)
        assert asyncio.run(main(mirror)) == chunks
        assert web.connections == 1, "one connection for all of them"
        assert mirror.name == f"{web.url}/people.prepared"


def test_chunks_may_be_asked_for_at_once_and_few_connections_are_kept(tmp_path: Path) -> None:
    chunks = [bytes([n]) * 50_000 for n in range(2 * MAX_IDLE)]
    names = published(tmp_path, chunks)

    async def main(mirror: HttpMirror) -> None:
        for _ in range(2):
            found = await asyncio.gather(*(mirror.get(name, 50_000) for name in names))
            assert found == chunks
            assert len(mirror._idle) <= MAX_IDLE
        mirror.close()

    with serving_files(tmp_path) as web:
        asyncio.run(main(HttpMirror(web.url, host=HERE)))


def test_nothing_but_the_chunk_is_asked_for_and_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with serving(right) as web:
        mirror = HttpMirror(f"{web.url}/some/folder", host=HERE)
        assert asyncio.run(fetch(mirror)) == DATA
        assert web.asked == [f"/some/folder{FILE}"]
        assert set(web.heads[0]) == {"host", "user-agent", "accept", "accept-encoding"}
        assert web.heads[0]["host"] == f"127.0.0.1:{web.port}"


def test_a_kept_connection_that_has_ended_is_no_trouble() -> None:
    def once(server: Scripted) -> None:
        right(server)
        server.close_connection = True  # without having said so

    def with_more(server: Scripted) -> None:
        server.send(head() + DATA + b"and more that nobody asked for\r\n\r\n")

    def too_late(server: Scripted) -> None:
        server.send(head() + DATA + head("408 Request Timeout", length=0))
        server.close_connection = True

    async def main(mirror: Mirror) -> None:
        for _ in range(4):
            assert await mirror.get(NAME, SIZE) == DATA
        mirror.close()

    for answer in (once, with_more, too_late):
        with serving(answer) as web:
            asyncio.run(main(HttpMirror(web.url, host=HERE)))
            assert web.connections == 4


def test_a_server_that_keeps_nothing_open_is_a_mirror_too() -> None:
    async def main(mirror: HttpMirror) -> None:
        for _ in range(3):
            assert await mirror.get(NAME, SIZE) == DATA
            assert not mirror._idle

    with serving(lambda server: server.send(head("200 OK", "Connection: close") + DATA)) as web:
        asyncio.run(main(HttpMirror(web.url, host=HERE)))


def test_what_is_missing_costs_no_connection() -> None:
    def missing(server: Scripted) -> None:
        server.send(head("404 Not Found", length=3) + b"no!")

    async def main(mirror: Mirror) -> None:
        for _ in range(3):
            with pytest.raises(DataMissing, match="status 404"):
                await mirror.get(NAME, SIZE)
        mirror.close()

    with serving(missing) as web:
        asyncio.run(main(HttpMirror(web.url, host=HERE)))
        assert web.connections == 1


# -- TLS ---------------------------------------------------------------------------------------


def test_with_tls_the_certificate_must_be_trusted_and_of_that_name(tmp_path: Path) -> None:
    tls = certificate(tmp_path / "keys", "mirror")
    (name,) = published(tmp_path / "data", [DATA])
    trusting = ssl.create_default_context(cafile=str(tls[0]))

    async def twice(mirror: Mirror) -> None:
        assert await mirror.get(name, SIZE) == await mirror.get(name, SIZE) == DATA
        mirror.close()

    async def loopback(_: str) -> tuple[str, ...]:
        return (HERE,)

    with serving_files(tmp_path / "data", tls) as web:
        asyncio.run(twice(HttpMirror(web.url, host=HERE, context=trusting)))
        assert web.connections == 1, "one handshake for both"
        unknown = failure(HttpMirror(web.url, host=HERE))
        assert isinstance(unknown, Unreachable)
        assert "certificate is not trusted" in unknown.message
        other = f"https://other.example:{web.port}"
        wrong = failure(HttpMirror(other, host=HERE, context=trusting, resolve=loopback))
        assert "certificate is not trusted" in wrong.message
        plain = failure(HttpMirror(f"http://127.0.0.1:{web.port}", host=HERE))
        assert isinstance(plain, Unreachable | DataMalformed)


# -- web servers that do not -------------------------------------------------------------------


def drip(server: Scripted) -> None:
    server.send(head())
    while not server.web.over.wait(0.01):
        server.send(b"x")


def endless_head(server: Scripted) -> None:
    server.send(b"HTTP/1.1 200 OK\r\n")
    while not server.web.over.is_set():
        server.send(b"X-More: of the same\r\n" * 100)


def one_endless_line(server: Scripted) -> None:
    while not server.web.over.is_set():
        server.send(b"HTTP/1.1 200 OK" * 100)


def silent(server: Scripted) -> None:
    server.web.over.wait()


def short(server: Scripted) -> None:
    server.send(head() + DATA[:-1])
    server.close_connection = True


def cut_up(server: Scripted) -> None:
    server.send(head("200 OK", "Transfer-Encoding: chunked", length=None))
    server.send(f"{SIZE:x}\r\n".encode() + DATA + b"\r\n0\r\n\r\n")


def packed(server: Scripted) -> None:
    data = gzip.compress(DATA)
    server.send(head("200 OK", "Content-Encoding: gzip", length=len(data)) + data)


def told(data: bytes) -> Answer:
    return lambda server: server.send(data)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (told(head("404 Not Found", length=0)), DataMissing, "does not have a chunk"),
        (told(head("403 Forbidden", length=0)), DataMissing, "not for everybody"),
        (told(head("503 Busy", length=0)), Unreachable, "status 503"),
        (told(head("206 Partial Content") + DATA), Unreachable, "status 206"),
        (told(head() + DATA[:-1] + b"!"), DataAltered, "other bytes"),
        (told(head(length=SIZE + 1) + DATA + b"!"), DataAltered, f"has {SIZE + 1} bytes"),
        (told(head(length=SIZE - 1) + DATA[:-1]), DataAltered, f"has {SIZE - 1} bytes"),
        (told(head(length=0)), DataAltered, "has 0 bytes"),
        (told(head(length=10**17)), DataAltered, "has 100000000000000000 bytes"),
        (packed, DataMalformed, "packed or cut up (gzip)"),
        (told(head("200 OK", "Content-Encoding: gzip") + DATA), DataMalformed, "packed"),
        (cut_up, DataMalformed, "chunked"),
        (told(head(length=None) + DATA), DataMalformed, "without a length"),
        (told(head("200 OK", "Content-Length: 5") + DATA), DataMalformed, "two things at once"),
        (told(head(length=-5) + DATA), DataMalformed, "length it says is none"),
        (told(b"220 mail.example ESMTP\r\n\r\n"), DataMalformed, "does not begin"),
        (told(b"\0" * 3 * MAX_HEAD_BYTES), DataMalformed, "does not end"),
        (endless_head, DataMalformed, "does not end"),
        (one_endless_line, DataMalformed, "does not end"),
    ],
)
def test_what_is_wrong_is_said(answer: Answer, error: type[CrowdgradError], words: str) -> None:
    found = answering(answer)
    assert type(found) is error
    assert words in found.message


def test_a_connection_that_ends_too_soon_is_not_taken_for_the_chunk() -> None:
    assert "broke off" in answering(short).message
    assert type(answering(short, keep=False)) is Unreachable
    ended = answering(lambda server: None, keep=False)
    assert type(ended) is Unreachable


@pytest.mark.parametrize("answer", [drip, silent])
def test_however_slowly_a_server_answers_it_has_its_time_and_no_more(answer: Answer) -> None:
    found = answering(answer, within_s=0.3)
    assert type(found) is Unreachable
    assert f"has not sent {SIZE:,} bytes within 0.3 s" in found.message


def test_where_nobody_listens_nobody_answers() -> None:
    with serving(right) as web:
        url = web.url
    found = failure(HttpMirror(url, host=HERE))
    assert type(found) is Unreachable
    assert "Nobody answers at" in found.message


def test_one_that_gives_up_leaves_no_connection_behind() -> None:
    async def main(mirror: HttpMirror) -> None:
        task = asyncio.create_task(mirror.get(NAME, SIZE))
        await asyncio.to_thread(web.reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not mirror._idle
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others

    with serving(silent) as web:
        asyncio.run(main(HttpMirror(web.url, host=HERE)))  # warnings are errors


@pytest.mark.parametrize(
    ("name", "size"),
    [("../../etc/passwd", 10), (NAME.upper(), SIZE), (NAME, 0), (NAME, MAX_CHUNK_BYTES + 1)],
)
def test_what_is_no_chunk_is_not_asked_for(name: str, size: int) -> None:
    with serving(right) as web:
        for mirror in (HttpMirror(web.url, host=HERE), StoreMirror("s3://bucket")):
            with pytest.raises(ValueError, match=r"a (hash|chunk) has"):
                asyncio.run(mirror.get(ChunkHash(name), size))
        assert not web.connections


# -- sent on -----------------------------------------------------------------------------------


def moved(to: str, status: str = "302 Found") -> bytes:
    return head(status, f"Location: {to}", length=0)


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 T", "308 P"])
def test_a_mirror_that_has_moved_is_followed_on_kept_connections(status: str) -> None:
    def answer(server: Scripted) -> None:
        new = server.path.startswith("/new")
        server.send(head() + DATA if new else moved(f"/new{FILE}", status))

    async def main(mirror: Mirror) -> None:
        for _ in range(3):
            assert await mirror.get(NAME, SIZE) == DATA
        mirror.close()

    with serving(answer) as web:
        asyncio.run(main(HttpMirror(f"{web.url}/old", host=HERE)))
        assert web.asked == [f"/old{FILE}", f"/new{FILE}"] * 3
        assert web.connections == 1


def test_it_is_followed_to_another_server_too() -> None:
    with serving(right) as new, serving(told(moved(f"{new.url}/there{FILE}"))) as old:
        assert asyncio.run(fetch(HttpMirror(old.url, host=HERE))) == DATA
        assert new.asked == [f"/there{FILE}"]


def test_nobody_runs_in_circles() -> None:
    with serving(told(moved(FILE))) as web:
        found = failure(HttpMirror(web.url, host=HERE))
        assert type(found) is Unreachable
        assert "more than 3 times" in found.message
        assert len(web.asked) == 1 + MAX_REDIRECTS


@pytest.mark.parametrize(
    "to",
    [
        "",
        "/",
        "/admin/delete",
        f"http://127.0.0.1:8080/reboot?now={FILE}",
        f"https://user:secret@example.org{FILE}",
        f"ftp://example.org{FILE}",
        f"file://{FILE}",
        f"s3://bucket{FILE}",
        f"gopher://example.org:70{FILE}",
        f"http://example.org:25{FILE}",
        f"http://[::1{FILE}",
        f"{FILE}?more",
        f"{FILE}#more",
        FILE.replace(NAME, "0" * 64),
    ],
)
def test_sent_anywhere_else_we_do_not_go(to: str) -> None:
    found = answering(told(moved(to)))
    assert type(found) is DataMalformed
    assert "sends us where we do not go" in found.message
    assert "secret" not in str(found)


# -- nobody is led into our own network --------------------------------------------------------


class Internet:
    """Names and addresses that a test says there are; every address answers like one server."""

    def __init__(self, port: int, names: dict[str, tuple[str, ...]]) -> None:
        self._port = port
        self._names = names
        self.looked_up: list[str] = []
        self.dialled: list[str] = []
        self.sent_on_to = ""

    def answer(self, path: str) -> bytes:
        if self.sent_on_to and path == FILE:
            return moved(self.sent_on_to)
        return head() + DATA

    async def resolve(self, name: str) -> tuple[str, ...]:
        self.looked_up.append(name)
        return self._names.get(name, (name,))

    async def connect(self, address: str, place: Place, context: ssl.SSLContext | None) -> Streams:
        self.dialled.append(address)
        here = Place(scheme="http", host=HERE, port=self._port, path="")
        return await really_connect(HERE, here, context)

    def mirror(self, address: str, host: str = "8.8.8.8") -> HttpMirror:
        return HttpMirror(address, host=host, resolve=self.resolve, connect=self.connect)


FAR = "93.184.216.34"


@pytest.fixture
def internet() -> Iterator[Internet]:
    names = {
        "far.example": (FAR,),
        "far2.example": ("8.8.4.4",),
        "near.example": ("10.0.0.1",),
        "both.example": (FAR, "192.168.1.1"),
        "router.example": ("64:ff9b::c0a8:101",),
    }

    with serving(lambda server: server.send(found.answer(server.path))) as web:
        found = Internet(web.port, names)
        yield found


def test_what_was_looked_at_is_dialled(internet: Internet) -> None:
    assert asyncio.run(fetch(internet.mirror("http://far.example"))) == DATA
    assert (internet.looked_up, internet.dialled) == (["far.example"], [FAR])


@pytest.mark.parametrize(
    "address",
    [
        "http://near.example",
        "http://both.example",
        "http://router.example",
        "http://127.0.0.1:8080",
        "http://[::1]",
        "http://[::ffff:10.0.0.1]:8080/x",
        "http://169.254.169.254/latest",
        "http://192.168.1.1",
        "https://100.64.0.1",
    ],
)
@pytest.mark.parametrize("host", ["8.8.8.8", "2001:4860::1", "relay.example", ""])
def test_a_host_far_away_leads_nobody_into_their_own_network(
    internet: Internet, address: str, host: str
) -> None:
    found = failure(internet.mirror(address, host))
    assert type(found) is NotDialled
    assert "a mirror of its data is at" in found.message
    assert not internet.dialled


@pytest.mark.parametrize("address", ["http://2130706433", "http://0x7f.1", "http://localhost"])
def test_odd_names_of_this_machine_are_seen_through(address: str) -> None:
    """By the system's own lookup, which need not know them all."""
    found = failure(HttpMirror(address, host="8.8.8.8"))
    assert type(found) is NotDialled or "Nobody knows where" in found.message


@pytest.mark.parametrize(
    "to", ["127.0.0.1:9999", "near.example", "both.example", "[fe80::1]", "router.example:8080"]
)
def test_nor_does_a_server_that_sends_us_on(internet: Internet, to: str) -> None:
    internet.sent_on_to = f"http://{to}{FILE}"
    found = failure(internet.mirror("http://far.example"))
    assert type(found) is NotDialled
    assert (len(internet.looked_up), internet.dialled) == (2, [FAR])


def test_one_that_moved_from_far_to_far_is_followed(internet: Internet) -> None:
    internet.sent_on_to = f"http://far2.example/new{FILE}"
    assert asyncio.run(fetch(internet.mirror("http://far.example"))) == DATA
    assert internet.dialled == [FAR, "8.8.4.4"]


def test_a_host_in_our_network_may_name_what_is_there(internet: Internet) -> None:
    assert asyncio.run(fetch(internet.mirror("http://near.example", "192.168.1.7"))) == DATA
    found = failure(internet.mirror("http://127.0.0.1:8080", "192.168.1.7"))
    assert type(found) is NotDialled
    assert internet.dialled == ["10.0.0.1"]


def test_another_address_is_tried_where_one_does_not_answer() -> None:
    async def both(_: str) -> tuple[str, ...]:
        return ("127.0.0.2", HERE)

    async def only_here(address: str, place: Place, context: ssl.SSLContext | None) -> Streams:
        if address != HERE:
            raise ConnectionRefusedError(111, "Connection refused")
        return await really_connect(address, place, context)

    with serving(right) as web:
        mirror = HttpMirror(web.url, host=HERE, resolve=both, connect=only_here)
        assert asyncio.run(fetch(mirror)) == DATA
