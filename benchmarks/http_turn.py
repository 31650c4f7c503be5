"""`POST turn` on SQLite beside an empty POST route of the same framework: `python -m benchmarks.http_turn`.

The server is a process of its own, and so is the load: 64 connections that are kept open, each with one
request under way. Both kinds of requests have the same headers and the same body. Rounds of both kinds
alternate, so that a machine that is busy for a while is so for both.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import middle_half, p50, p99
from benchmarks.serving import Quiet, Round, cpu_seconds, describe, quiet, quiet_after, serve
from benchmarks.turns import ANSWER, QUESTION

CONNECTIONS = 64
SECONDS = 2.0
ROUNDS = 6

TURN = {"messages": [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]}


# The server


async def run_server(folder: Path) -> None:
    from aforesaid.server.app import create_app
    from aforesaid.settings import ServerConfig, Settings

    settings = Settings(server=ServerConfig(rate_write=2**40))  # counted, but never refused
    await serve(folder, ["erin"], settings, lambda memory: create_app(memory, settings))


# The load


class Line(asyncio.Protocol):
    """A connection with one request under way: the next is sent when the answer to the last is there."""

    def __init__(self, request: bytes, until: float) -> None:
        self.request = request
        self.until = until
        self.times: list[float] = []
        self.bad = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return
        self.times.append(time.perf_counter() - self._sent_at)
        self.bad += not head.startswith(b"HTTP/1.1 201")
        self._buffer = b""
        if time.perf_counter() < self.until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _length(head: bytes) -> int:
    at = head.lower().find(b"content-length:")
    return 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])


async def load(pid: int, port: int, requests: list[bytes], seconds: float) -> Round:
    """Requests a second, and how long each took."""
    loop = asyncio.get_running_loop()
    spent, own = cpu_seconds(pid), time.process_time()
    begin = time.perf_counter()
    lines = []
    for request in requests:
        _, line = await loop.create_connection(lambda r=request: Line(r, begin + seconds), "127.0.0.1", port)  # type: ignore[misc]
        lines.append(line)
    await asyncio.gather(*(line.ended for line in lines))
    took, own = time.perf_counter() - begin, time.process_time() - own
    times = [each for line in lines for each in line.times]
    bad = sum(line.bad for line in lines)
    if bad:
        raise SystemExit(f"{bad} of {len(times)} answers were not 201")
    return Round(len(times) / took, times, (cpu_seconds(pid) - spent) / len(times), own / len(times))


def request_to(path: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def open_memory(port: int, key: str, count: int) -> list[str]:
    """Conversations, one for each connection."""
    ids = []
    for at in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps({"session_id": f"bench-{at}"}).encode()
        writer.write(request_to("/v1/conversations", key, body))
        head = await reader.readuntil(b"\r\n\r\n")
        ids.append(json.loads(await reader.readexactly(_length(head)))["id"])
        writer.close()
    return ids


async def measure(*, seconds: float, rounds: int) -> dict[str, list[Round]]:
    found, _ = await _measured(seconds=seconds, rounds=rounds)
    return found


async def _measured(*, seconds: float, rounds: int) -> tuple[dict[str, list[Round]], Quiet]:
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.http_turn", "--serve", folder], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout is not None
            said = json.loads(await asyncio.to_thread(server.stdout.readline))
            return await _rounds(server.pid, said["port"], said["key"], seconds, rounds)
        finally:
            server.terminate()
            server.wait(30)


async def _rounds(
    pid: int, port: int, key: str, seconds: float, rounds: int
) -> tuple[dict[str, list[Round]], Quiet]:
    ids = await open_memory(port, key, CONNECTIONS)
    body = json.dumps(TURN).encode()
    requests = {
        "turn": [request_to(f"/v1/conversations/{each}/turns", key, body) for each in ids],
        "empty": [request_to("/empty", key, body) for _ in ids],
    }
    found: dict[str, list[Round]] = {name: [] for name in requests}
    for name in ("turn", "empty", "turn"):
        warm = await load(pid, port, requests[name], 0.5)
        after = await quiet_after(pid, port, len(warm.times))
    for _ in range(rounds):
        for name, each in requests.items():
            found[name].append(await load(pid, port, each, seconds))
            await quiet(port)
    return found, after


async def main(*, seconds: float = SECONDS, rounds: int = ROUNDS) -> dict[str, float]:
    found, after = await _measured(seconds=seconds, rounds=rounds)
    print(f"{CONNECTIONS} connections, {rounds} rounds of {seconds:g} s each, alternating; SQLite, durable")
    for name, each in found.items():
        print(f"{name:6} {describe(each)}")
    print(after)
    turns, empty = found["turn"], found["empty"]
    by_rate = [turn.rate / bare.rate for turn, bare in zip(turns, empty, strict=True)]
    by_cpu = [bare.cpu / turn.cpu for turn, bare in zip(turns, empty, strict=True)]
    print(f"turn / empty, throughput: {statistics.median(by_rate):.2f} (middle half {middle_half(by_rate)})")
    print(f"turn / empty, by processor: {statistics.median(by_cpu):.2f} (middle half {middle_half(by_cpu)})")
    times = [time for one in turns for time in one.times]
    return {
        "POST turn / empty POST, throughput": statistics.median(by_rate),
        "POST turn / empty POST, by processor": statistics.median(by_cpu),
        "POST turn, p99 / p50": p99(times) / p50(times),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", type=Path, help="be the server, with the store in this folder")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    if given.serve is not None:
        from aforesaid.server.process import new_event_loop

        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run_server(given.serve))
    else:
        asyncio.run(main(seconds=given.seconds, rounds=given.rounds))
