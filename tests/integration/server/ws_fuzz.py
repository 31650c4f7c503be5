"""Whatever a client sends, the server stands: `python -m tests.integration.server.ws_fuzz --frames 10000`.

Frames of every kind, whole and broken, true and false, text and binary, before and after a hello; broken
WebSocket frames too. The server must not crash, must not close in a way that is not documented, and must
answer a well-behaved client all the while.
"""

import argparse
import asyncio
import json
import random
import string
from collections import Counter
from typing import Any

from msgspec import Struct
from websockets.exceptions import ConnectionClosed

from aforesaid.model.messages import Message
from aforesaid.protocol.live import CLOSE_CODES, INCOMING_TYPES
from aforesaid.telemetry import telemetry
from tests.integration.server.live.parts import PATIENCE
from tests.integration.server.live.sockets import Serving, Socket, live_serving

FIELDS = (
    "active", "answer", "at", "channel", "channels", "conversation_id", "device", "heard", "history", "id",
    "key", "media_type", "name", "owner", "place", "rate", "session_id", "text", "type", "colour",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 20, 2**31, 2**64, 10**400, 1.5, -0.0, "", " ", "a", "kitchen", "\0", "é",
    "🦜", "\ud800", "x" * 300, "x" * 2000, "00000000-0000-0000-0000-000000000000", "text", "voice",
    "audio/wav", "audio/pcm", [], [1], {}, {"a": 1}, {"revision": 0, "sequence": 0, "messages": 0},
    {"revision": 2**60, "sequence": 2**60, "messages": 2**60}, {"revision": 1, "sequence": -1, "messages": 0},
)  # fmt: skip
NOT_FRAMES = (
    "", " ", "{", "}", "null", "[]", "[1,2]", '"hello"', "0", "NaN", '{"type":}', '{"type":"text"',
    "\ufeff{}", "[" * 5000, '{"a":' * 5000, '{"type":"text","type":"hello"}', '{"type":["text"]}',
    '{"type":"TEXT"}',
)  # fmt: skip
BROKEN = (
    b"\xc1\x80\0\0\0\0",  # a reserved bit
    b"\x83\x80\0\0\0\0",  # an opcode that does not exist
    b"\x81\x05hello",  # not masked
    b"\x81\x82\0\0\0\0\xff\xfe",  # text that is not UTF-8
    b"\x80\x80\0\0\0\0",  # a continuation of nothing
    b"\x89\xfe\x00\x7e\0\0\0\0",  # a ping that is too long
    b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",  # a frame of eight exabytes
    b"\x88\x81\0\0\0\0\x01",  # a close with half a code
    b"\x88\x82\0\0\0\0\x00\x01",  # a close with a reserved code
)


class Report(Struct, kw_only=True):
    """What came of it."""

    frames: int = 0
    """That the server was given: what stood behind one that closed the connection does not count."""
    connections: int = 0
    answers: Counter[str] = Counter()
    closes: Counter[int] = Counter()
    statuses: Counter[int] = Counter()
    undocumented: list[str] = []


def any_frame(chance: random.Random, conversation_id: str) -> str | bytes:
    """Something to send: mostly nearly right, because that goes deepest."""
    kind = chance.random()
    if kind < 0.08:
        return chance.randbytes(chance.choice((0, 1, 2, 320, 5000)))
    if kind < 0.16:
        return chance.choice(NOT_FRAMES)
    if kind < 0.22:
        return "".join(chance.choices(string.printable, k=chance.randrange(200)))
    frame = _nearly_right(chance, conversation_id)
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2, 3))):
        frame[chance.choice(FIELDS)] = chance.choice(VALUES)
    if frame["type"] == "bye" and chance.random() < 0.9:
        frame["type"] = "ping"
    text = json.dumps(frame)
    return text if chance.random() < 0.95 else text[: chance.randrange(len(text))]


def _nearly_right(chance: random.Random, conversation_id: str) -> dict[str, Any]:
    """A frame as it should be, of any type; a few of types that there are not."""
    turn, audio = f"q{chance.randrange(10**6)}", f"a{chance.randrange(3)}"
    fields: dict[str, dict[str, Any]] = {
        "hello": {"session_id": "again"},
        "text": {"id": turn, "text": f"hello {turn}", "answer": chance.random() < 0.5},
        "turn": {"id": turn, "messages": [{"role": "user", "content": f"hello {turn}"}]},
        "audio.start": {"id": audio, "media_type": chance.choice(("audio/wav", "audio/pcm"))},
        "audio.end": {"id": audio},
        "audio.cancel": {"id": audio},
        "interrupt": chance.choice(({}, {"heard": 3}, {"id": turn, "heard": 1})),
        "typing": {"active": chance.random() < 0.5},
        "watch": {"conversation_id": conversation_id, "history": chance.randrange(201)},
        "unwatch": {"conversation_id": conversation_id},
    }
    kind = chance.choice((*INCOMING_TYPES, "text", "watch", "shout", "answer.done", ""))
    frame = {"type": kind, **fields.get(kind, {})}
    if kind in ("text", "turn", "typing", "audio.start") and chance.random() < 0.2:
        frame["conversation_id"] = conversation_id
    return frame


async def _understood(audio: bytes, _: object) -> Message:
    return Message(role="user", content=f"{len(audio)} bytes", content_type="audio")


def frames_heard() -> float:
    """Frames that this process's servers were given."""
    kinds = ("text", "binary")
    return sum(
        telemetry.counter("aforesaid_live_frames_total", direction="in", kind=kind).value for kind in kinds
    )


async def fuzz(server: Serving, *, frames: int, seed: int) -> Report:
    """Send until so many frames have reached the server, over as many connections as it takes."""
    chance = random.Random(seed)
    report = Report(answers=Counter(), closes=Counter(), statuses=Counter(), undocumented=[])
    key = await server.key("erin", "sam")
    before = frames_heard()
    async with server.connect() as good:
        ready = await good.hello(key=key, owner="erin", session_id="good")
        while frames_heard() - before < frames:
            await _one_connection(server, chance, report, key, ready["conversation"]["id"])
            done = await good.say(f"good-{report.connections}", "still there?")
            assert done["text"] == "you said still there?", done
    report.frames = int(frames_heard() - before)
    return report


async def _one_connection(
    server: Serving, chance: random.Random, report: Report, key: str, conversation_id: str
) -> None:
    report.connections += 1
    async with server.connect(ping_interval=None) as client:
        hearing = asyncio.create_task(_hear(client, report))
        try:
            if chance.random() < 0.9:
                hello = {"key": key, "owner": "erin", "session_id": f"fuzz-{chance.randrange(5)}"}
                await client.send("hello", **hello)
            for _ in range(chance.randrange(1, 400)):
                if hearing.done():
                    break
                if chance.random() < 0.003:
                    client.socket.transport.write(chance.choice(BROKEN))
                await client.socket.send(_sendable(any_frame(chance, conversation_id)))
            await _all_heard(client, hearing, report)
        except (ConnectionClosed, OSError):
            pass
        if chance.random() < 0.3:
            client.drop()
        else:
            await client.socket.close()
        await hearing


async def _all_heard(client: Socket, hearing: "asyncio.Task[None]", report: Report) -> None:
    """Wait until all that was sent is dealt with: the server answers a last question, or has closed."""
    waited = 0.0
    pongs = report.answers["pong"]
    while report.answers["pong"] == pongs and not hearing.done():
        await client.send("ping", at=0.5)
        await asyncio.wait({hearing}, timeout=0.05)
        waited += 0.05
        if waited > PATIENCE:
            report.undocumented.append("the server does not answer")
            return


def _sendable(frame: str | bytes) -> str | bytes:
    return frame if isinstance(frame, bytes) else frame.encode("utf-8", "replace").decode()


async def _hear(client: Socket, report: Report) -> None:
    try:
        while True:
            frame = json.loads(await client.socket.recv())
            report.answers[frame["type"]] += 1
            problem = frame.get("problem")
            if problem is not None:
                report.statuses[problem["status"]] += 1
                if problem["status"] == 500 or not problem["type"].startswith("urn:aforesaid:problem:"):
                    report.undocumented.append(f"problem {problem}")
    except ConnectionClosed as closed:
        if closed.rcvd is not None and closed.rcvd_then_sent is not False:  # else it echoes the client's own
            report.closes[closed.rcvd.code] += 1
            if closed.rcvd.code not in CLOSE_CODES or closed.rcvd.code == 1011:
                report.undocumented.append(f"close {closed.rcvd}")


async def main(frames: int, seed: int) -> Report:
    # Fast enough to fuzz, and the limits themselves are met too.
    async with live_serving(frames_per_second=2000, burst=150, refused_frames=200) as server:
        server.live.services.transcribe = lambda manager: _understood  # type: ignore[method-assign]
        return await fuzz(server, frames=frames, seed=seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    found = asyncio.run(main(given.frames, given.seed))
    print(f"{found.frames:,} frames over {found.connections:,} connections")
    print("answers", dict(found.answers.most_common()))
    print("problems", dict(found.statuses.most_common()))
    print("closes", {f"{code} {CLOSE_CODES.get(code, '?')}": n for code, n in found.closes.most_common()})
    for each in found.undocumented:
        print("NOT DOCUMENTED:", each)
    raise SystemExit(1 if found.undocumented else 0)
