"""gRPC as people use it from Python: an asyncio server, one unary call to push and pull.

`driver.py BYTES` starts a server process and is its client, a player (`benchmarks/_windows.py`): a
call carries so many bytes there and as many back. The messages are bare bytes: no protobuf is
packed or unpacked, no number is looked at, so a parameter server in gRPC is slower than this.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parents[2]))

from _windows import READY, answer

SERVICE, METHOD = "bench.Parameters", "Exchange"
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


async def serve() -> None:
    async def exchange(update: bytes, context: object) -> bytes:
        return update

    server = grpc.aio.server(options=OPTIONS)
    handler = grpc.unary_unary_rpc_method_handler(exchange)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


async def play(port: int, size: int) -> None:
    update = bytes(size)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        await call(update)
        print(READY, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            began = now = time.perf_counter_ns()
            until, trips = began + int(float(line) * 1e9), []
            while now < until:
                await call(update)
                before, now = now, time.perf_counter_ns()
                trips.append(now - before)
            print(answer((now - began) / 1e9, trips), flush=True)


def main() -> None:
    if sys.argv[1] == "serve":
        asyncio.run(serve())
        return
    with subprocess.Popen(
        [sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        asyncio.run(play(int(server.stdout.readline()), int(sys.argv[1])))
        server.stdin.close()


if __name__ == "__main__":
    main()
