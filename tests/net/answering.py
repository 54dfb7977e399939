"""An HTTP server that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from crowdgrad.net import signing


class Asked:
    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.method = handler.command
        self.path = handler.path
        self.hosts = handler.headers.get_all("Host")
        self.authorization = handler.headers.get("Authorization")
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))

    @property
    def proof(self) -> signing.Proof:
        assert self.authorization is not None
        return signing.from_header(self.authorization)

    @property
    def holds(self) -> bool:
        (host,) = self.hosts or [""]
        return signing.verify(
            self.proof, method=self.method, authority=host, path=self.path, body=self.body
        )


Said = tuple[int, dict[str, str], bytes]


class Answering:
    """An HTTP server that gives one answer after the other, the last ever after."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[Said] = []
        self.asked: list[Asked] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self) -> None:
                outer.asked.append(Asked(self))
                status, headers, body = (
                    outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                )
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = True

            do_GET = do_POST = do_DELETE = _do

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
