"""Web servers on loopback, right ones and wrong ones: what a mirror's client has to bear."""

from __future__ import annotations

import contextlib
import functools
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Web:
    """A server that runs; `connections` and `asked` are what it has seen."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str) -> None:
        self.port = server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.connections = 0
        self.asked: list[str] = []
        self.reached = threading.Event()
        self.heads: list[dict[str, str]] = []
        self.over = threading.Event()
        """What an answer that never ends waits for."""


Answer = Callable[["Scripted"], None]


class Scripted(BaseHTTPRequestHandler):
    """Answers as it is told, byte by byte."""

    web: Web
    answer: Answer

    def setup(self) -> None:
        super().setup()
        self.web.connections += 1

    def do_GET(self) -> None:
        self.web.asked.append(self.path)
        self.web.reached.set()
        self.web.heads.append({name.lower(): value for name, value in self.headers.items()})
        with contextlib.suppress(ConnectionError):  # the client has seen enough
            type(self).answer(self)

    def send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass


class Files(SimpleHTTPRequestHandler):
    """Python's own server of files, as `python -m http.server` is, with connections kept."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    web: Web

    def setup(self) -> None:
        super().setup()
        self.web.connections += 1

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serving(answer: Answer, *, keep: bool = True) -> Iterator[Web]:
    """`keep`: the server leaves connections open unless the answer says otherwise."""
    version = "HTTP/1.1" if keep else "HTTP/1.0"
    kind = type("Told", (Scripted,), {"answer": answer, "protocol_version": version})
    with _running(kind, kind) as web:
        yield web


@contextlib.contextmanager
def serving_files(folder: Path, tls: tuple[Path, Path] | None = None) -> Iterator[Web]:
    kind = type("Counting", (Files,), {})
    with _running(kind, functools.partial(kind, directory=str(folder)), tls) as web:
        yield web


class Quiet(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """A client that ends a connection is no news, nor is one that does not trust us."""


@contextlib.contextmanager
def _running(kind: Any, handler: Any, tls: tuple[Path, Path] | None = None) -> Iterator[Web]:
    server = Quiet(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        # The handshake belongs to the connection's own thread, not to the one that accepts.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    kind.web = web = Web(server, "http" if tls is None else "https")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
