"""A real panel as a process of its own, and a browser's part of the talk with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

PATIENCE_S = 90.0

STUBBORN = """
import torch
import crowdgrad as cg


class Stubborn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer(x.flatten(1))
        return x * float(x.sum().item() > 0)


task = cg.Task(
    model=Stubborn(),
    loss=torch.nn.functional.cross_entropy,
    inputs=(torch.zeros(4, 8, 8),),
    targets=(torch.zeros(4, dtype=torch.int64),),
)
"""
"""A model that cannot travel: what it does depends on what it sees."""


class Browser:
    """Lets itself in by the address, then asks with the key that it was given."""

    def __init__(self, url: str, pid: int = 0) -> None:
        found = urlsplit(url)
        self.url, self.pid = url, pid
        self.netloc = found.netloc
        self.token = found.fragment.removeprefix("enter=")
        self.key = ""
        code, self.entering, told = self.enter(self.token)
        assert code == 200, code
        self.key = json.loads(told)["key"]

    def enter(self, given: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        return self.raw("POST", "/api/enter", headers={"Authorization": f"Bearer {given}"})

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """`key`: in place of ours; empty: none."""
        connection = http.client.HTTPConnection(self.netloc, timeout=PATIENCE_S)
        given = self.key if key is None else key
        known = {"Authorization": f"Bearer {given}"} if given else {}
        try:
            connection.request(method, path, body, {**known, **(headers or {})})
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, wish: object = None, code: int = 200) -> Any:
        body = None if wish is None else json.dumps(wish).encode()
        headers = {"Content-Type": "application/json"}
        status, _, told = self.raw(method, path, body, headers=headers)
        assert status == code, (status, told)
        return json.loads(told)

    def events(self, run: str = "") -> Iterator[tuple[str, Any]]:
        """Until the caller has heard enough."""
        with self.listen(run) as socket:
            while True:
                told = json.loads(socket.recv(timeout=PATIENCE_S))
                yield told["event"], told["data"]

    def listen(
        self, run: str = "", *, key: str | None = None, origin: str | None = None
    ) -> ClientConnection:
        """The stream, as a page of ours asks for it, or with others in place of what it says."""
        ours = f"http://{self.netloc}" if origin is None else origin
        given = self.key if key is None else key
        return connect(
            f"ws://{self.netloc}/api/events?run={run}",
            additional_headers={"Origin": ours} if ours else {},
            subprotocols=[Subprotocol("crowdgrad"), Subprotocol(f"key.{given}")],
            max_size=None,
        )

    def task(self, name: str) -> Any:
        """How it ended, heard of in the stream; what came of it is asked for."""
        for event, told in self.events():
            if event == "task" and told["id"] == name and told["state"] != "running":
                assert told["result"] is None, "the stream repeats it to nobody"
                return self.ask("GET", f"/api/tasks/{name}")
        raise AssertionError("the stream ended")

    def child(self, name: str, *states: str) -> Any:
        """The child, once it is in one of these states."""
        for event, told in self.events():
            if event == "panel":
                for child in told["children"]:
                    if child["id"] == name and child["state"] in states:
                        return child
        raise AssertionError("the stream ended")


@contextlib.contextmanager
def panel(home: Path, *arguments: str) -> Iterator[Browser]:
    environment = {**os.environ, "CROWDGRAD_HOME": str(home), "CROWDGRAD_LAN": "no"}
    process = subprocess.Popen(
        [sys.executable, "-m", "crowdgrad", "panel", "--runs", str(home / "runs"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        yield Browser(found[0], process.pid)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
