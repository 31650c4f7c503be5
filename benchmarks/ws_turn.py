"""A turn over the WebSocket on SQLite beside the same framework's echo: `python -m benchmarks.ws_turn`.

A turn is a frame with both messages, stored, and acknowledged, as `POST turn` is; the echo sends the same
frame back. Beside it what a user of an assistant does: text in, an agent that answers at once, the
answer out in one piece, both messages stored, the acknowledgement out; and the same with what an agent is
given first, the last twenty messages. The server is a process of its own, and so is the load: 64 connections
that stay open, each with one exchange under way. Rounds of all kinds alternate: a machine that is busy for
a while is so for all.
"""

import argparse
import asyncio
import base64
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from aforesaid.model.ids import new_id
from benchmarks.measuring import middle_half, p50, p99
from benchmarks.serving import Quiet, Round, cpu_seconds, describe, quiet, quiet_after, serve
from benchmarks.turns import ANSWER, QUESTION

CONNECTIONS = 64
GIVEN, AT_ONCE, LOOKS_BACK = "given", "at once", "looks back"
"""Owners: one's turns are answered elsewhere, one's assistant answers at once, one's looks back first."""
MESSAGES = json.dumps([{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}])
PING = 0x9
SECONDS = 2.0
ROUNDS = 6


# The server


async def run_server(folder: Path) -> None:
    from aforesaid.agents import AgenticLoop, Answer, Specialist, SupervisorAgent, TurnProgress
    from aforesaid.contracts import Ask, OnText, Reply
    from aforesaid.memory.manager import ConversationManager
    from aforesaid.model.ids import following_id
    from aforesaid.model.messages import Message
    from aforesaid.server.app import create_app
    from aforesaid.server.limits import LiveLimits
    from aforesaid.settings import ServerConfig, Settings

    class Instant:
        name, dialect = "instant", "plain"

        async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
            if on_text is not None:
                on_text(ANSWER)
            return Reply(messages=(Message(role="assistant", content=ANSWER),))

        async def close(self) -> None: ...

    class AtOnce(SupervisorAgent):
        """Answers without looking back: what remains is the way in, the store, and the way out."""

        async def answer_query(
            self,
            query: str | Message,
            session_id: str,
            conversation_id: str | None = None,
            *,
            on_text: OnText | None = None,
            progress: TurnProgress | None = None,
            **_: object,
        ) -> Answer:
            assert isinstance(query, Message)
            assert query.message_id
            assert conversation_id
            assert on_text
            on_text(ANSWER)
            answer = Message(role="assistant", content=ANSWER, message_id=following_id(query.message_id, 1))
            stored = await self.conversation_manager.append(conversation_id, [query, answer])
            return Answer(text=ANSWER, messages=(query, answer), steps=1, stored=stored)

    def assistant(manager: ConversationManager) -> SupervisorAgent:
        kind = SupervisorAgent if manager.owner == LOOKS_BACK else AtOnce
        return kind(manager, [Specialist(loop=AgenticLoop(Instant()))])

    # Counted, but never refused: these clients say more than people do.
    settings = Settings(server=ServerConfig(rate_write=2**40, rate_ask=2**40))
    limits = LiveLimits(frames_per_second=1e9, burst=2**30)
    await serve(
        folder,
        [GIVEN, AT_ONCE, LOOKS_BACK],
        settings,
        lambda memory: create_app(memory, settings, assistant=assistant, live_limits=limits),
    )


# The load


def frame_of(text: str) -> bytes:
    """A text frame as a client sends it. Masked with zeros, which is allowed, and costs nothing here."""
    data = text.encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
    return b"\x81" + size + b"\0\0\0\0" + data


class Line(asyncio.Protocol):
    """A connection with one turn under way: the next is begun when the last has ended."""

    def __init__(self, path: str, hello: str | None, say: Callable[[], str], ends: bytes) -> None:
        self.times: list[float] = []
        self.until = 0.0
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] | None = None
        self._path = path
        self._hello = hello
        self._say = say
        self._ends = ends
        self._buffer = bytearray()
        self._upgraded = False
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            f"sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n\r\n".encode()
        )

    def close(self) -> None:
        self._transport.close()

    def go(self, until: float) -> "asyncio.Future[None]":
        self.until = until
        self.ended = asyncio.get_running_loop().create_future()
        self._send()
        return self.ended

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(frame_of(self._say()))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded and not self._upgrade():
            return
        while (frame := self._frame()) is not None:
            self._take(frame)

    def _upgrade(self) -> bool:
        head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not found:
            return False
        assert head.startswith(b"HTTP/1.1 101"), head
        self._upgraded, self._buffer = True, bytearray(rest)
        if self._hello is not None:
            self._transport.write(frame_of(self._hello))
        else:
            self.ready.set_result(None)
        return True

    def _frame(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(buffer[2:start], "big")
        if len(buffer) < start + size:
            return None
        opcode, frame = buffer[0] & 0x0F, bytes(buffer[start : start + size])
        del buffer[: start + size]
        if opcode == PING:
            self._transport.write(bytes([0x8A, 0x80 | len(frame)]) + b"\0\0\0\0" + frame)
            return self._frame()
        return frame

    def _take(self, frame: bytes) -> None:
        if not self.ready.done():
            assert frame.startswith(b'{"type":"ready"'), frame
            self.ready.set_result(None)
        elif frame.startswith(self._ends):
            self._next()
        elif frame.startswith(b'{"type":"ping"'):
            self._transport.write(frame_of('{"type":"pong"}'))
        elif not frame.startswith(b'{"type":"answer.delta"'):
            raise SystemExit(f"unexpected: {frame[:200]!r}")

    def _next(self) -> None:
        now = time.perf_counter()
        self.times.append(now - self._sent_at)
        if now < self.until:
            self._send()
        elif self.ended is not None:
            self.ended.set_result(None)


async def load(lines: list[Line], seconds: float, server: int) -> Round:
    """Exchanges a second, and how long each took."""
    for line in lines:
        line.times = []
    begin, busy, own = time.perf_counter(), cpu_seconds(server), time.process_time()
    await asyncio.gather(*(line.go(begin + seconds) for line in lines))
    took, busy, own = time.perf_counter() - begin, cpu_seconds(server) - busy, time.process_time() - own
    times = [each for line in lines for each in line.times]
    return Round(len(times) / took, times, busy / len(times), own / len(times))


async def connected(port: int, make: Callable[[int], Line]) -> list[Line]:
    loop = asyncio.get_running_loop()
    lines = []
    for at in range(CONNECTIONS):
        _, line = await loop.create_connection(lambda at=at: make(at), "127.0.0.1", port)  # type: ignore[misc]
        await line.ready
        lines.append(line)
    return lines


def hello(at: int, key: str, owner: str) -> str:
    return json.dumps({"type": "hello", "key": key, "owner": owner, "session_id": f"bench-{at}"})


def talking(at: int, key: str, owner: str) -> Line:
    """Asks, and is answered."""

    def say() -> str:
        return f'{{"type":"text","id":"{new_id()}","text":"{QUESTION}"}}'

    return Line("/ws", hello(at, key, owner), say, b'{"type":"answer.done"')


def giving(at: int, key: str) -> Line:
    """Has turns stored that were answered elsewhere."""
    return Line("/ws", hello(at, key, GIVEN), turn, b'{"type":"stored"')


def echoing(at: int) -> Line:
    """Has the same frames sent back."""
    return Line("/echo", None, turn, b"{")


def turn() -> str:
    """With an id as our own are, and as HTTP gives them: it rises with time."""
    return f'{{"type":"turn","id":"{new_id()}","messages":{MESSAGES}}}'


async def measure(*, seconds: float, rounds: int) -> dict[str, list[Round]]:
    found, _ = await _measured(seconds=seconds, rounds=rounds)
    return found


async def _measured(*, seconds: float, rounds: int) -> tuple[dict[str, list[Round]], Quiet]:
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ws_turn", "--serve", folder], stdout=subprocess.PIPE
        )
        try:
            assert server.stdout is not None
            said = json.loads(await asyncio.to_thread(server.stdout.readline))
            return await _rounds(said["port"], said["key"], server.pid, seconds, rounds)
        finally:
            server.terminate()
            server.wait(30)


async def _rounds(
    port: int, key: str, server: int, seconds: float, rounds: int
) -> tuple[dict[str, list[Round]], Quiet]:
    lines = {
        "echo": await connected(port, echoing),
        "turn": await connected(port, lambda at: giving(at, key)),
        "asked": await connected(port, lambda at: talking(at, key, AT_ONCE)),
        "asked, with its window": await connected(port, lambda at: talking(at, key, LOOKS_BACK)),
    }
    found: dict[str, list[Round]] = {name: [] for name in lines}
    for _ in range(2):  # the first loads what makes vectors
        warm = await load(lines["turn"], 0.5, server)
        after = await quiet_after(server, port, len(warm.times))
    for each in lines.values():
        await load(each, 0.5, server)
        await quiet(port)
    for _ in range(rounds):
        for name, each in lines.items():
            found[name].append(await load(each, seconds, server))
            await quiet(port)
    for line in (line for each in lines.values() for line in each):
        line.close()
    return found, after


async def main(*, seconds: float = SECONDS, rounds: int = ROUNDS) -> dict[str, float]:
    found, after = await _measured(seconds=seconds, rounds=rounds)
    print(f"{CONNECTIONS} connections, {rounds} rounds of {seconds:g} s, alternating; SQLite, durable (FULL)")
    for name, each in found.items():
        print(f"{name:22} {describe(each)}")
    print(after)
    for name in ("turn", "asked", "asked, with its window"):
        by_rate, by_cpu = _shares(found, name)
        print(
            f"{name} / echo: throughput {statistics.median(by_rate):.2f} ({middle_half(by_rate)}), "
            f"by processor {statistics.median(by_cpu):.2f} ({middle_half(by_cpu)})"
        )
    by_rate, by_cpu = _shares(found, "turn")
    turns = [time for one in found["turn"] for time in one.times]
    return {
        "WebSocket turn / echo, throughput": statistics.median(by_rate),
        "WebSocket turn / echo, by processor": statistics.median(by_cpu),
        "WebSocket turn, p99 / p50": p99(turns) / p50(turns),
    }


def _shares(found: dict[str, list[Round]], name: str) -> tuple[list[float], list[float]]:
    """The share of the echo's throughput, and of what the same processor time would give of echoes."""
    pairs = list(zip(found[name], found["echo"], strict=True))
    return [one.rate / echo.rate for one, echo in pairs], [echo.cpu / one.cpu for one, echo in pairs]


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
