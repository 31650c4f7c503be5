"""The client side of the Wyoming protocol, against a service of ours and the protocol's own package."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wyoming.asr import Transcribe
from wyoming.asr import Transcript as TheirTranscript
from wyoming.event import Event as TheirEvent
from wyoming.event import async_read_event
from wyoming.server import AsyncEventHandler, AsyncTcpServer

from aforesaid.contracts import Audio, AudioFormat, StreamingTranscriber, Transcript
from aforesaid.errors import InvalidAudio, InvalidSetting, TranscriberError, TranscriberUnavailable
from aforesaid.voice import WyomingTranscriber
from aforesaid.voice.wyoming import CHUNK, Event, encode_event, read_event
from tests.servers.wyoming import WyomingService

SAMPLES = bytes(range(256)) * 100


async def test_samples_go_out_and_words_come_back() -> None:
    async with WyomingService(lambda samples: f" {len(samples)} bytes ").running() as service:
        transcriber = WyomingTranscriber(service.url, model="tiny")
        assert isinstance(transcriber, StreamingTranscriber)
        form = AudioFormat(rate=22_050, channels=2)
        heard = await transcriber.transcribe(Audio(data=SAMPLES, format=form), language="en")
    assert heard == Transcript(text=f"{len(SAMPLES)} bytes", language="en")
    first, start, *chunks, stop = service.events
    assert {key: first[0][key] for key in ("type", "language", "name")} == {
        "type": "transcribe",
        "language": "en",
        "name": "tiny",
    }
    assert {key: start[0][key] for key in ("rate", "width", "channels")} == {
        "rate": 22_050,
        "width": 2,
        "channels": 2,
    }
    assert all(len(payload) <= CHUNK for _, payload in chunks)
    assert b"".join(payload for _, payload in chunks) == SAMPLES
    assert stop[0]["type"] == "audio-stop"


class Handler(AsyncEventHandler):
    """A speech service, written with the protocol's own package."""

    async def handle_event(self, event: TheirEvent) -> bool:
        if Transcribe.is_type(event.type):
            self.language = Transcribe.from_event(event).language
        elif event.type == "audio-start":
            self.rate, self.samples = event.data["rate"], b""
        elif event.type == "audio-chunk":
            self.samples += event.payload or b""
        elif event.type == "audio-stop":
            said = f"{len(self.samples)} bytes at {self.rate}"
            await self.write_event(TheirTranscript(text=said, language=self.language).event())
            return False
        return True


@asynccontextmanager
async def their_server() -> AsyncIterator[str]:
    server = AsyncTcpServer("127.0.0.1", 0)
    await server.start(Handler)
    listening: Any = server._server
    try:
        yield f"tcp://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        await server.stop()


async def test_the_protocols_own_server_understands_us() -> None:
    async with their_server() as url:
        transcriber = WyomingTranscriber(url)
        heard = await transcriber.transcribe(Audio(data=SAMPLES), language="nl")
        again = await transcriber.transcribe(Audio(data=SAMPLES[:100]))
        await transcriber.close()
    assert heard == Transcript(text=f"{len(SAMPLES)} bytes at 16000", language="nl")
    assert again.text == "100 bytes at 16000"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    st.lists,
    max_leaves=4,
)


@given(
    kind=st.text(min_size=1), data=st.dictionaries(st.text(), json_values), payload=st.binary(max_size=100)
)
def test_an_event_is_the_same_to_both(kind: str, data: dict[str, Any], payload: bytes) -> None:
    sent = encode_event(Event(type=kind, data=data, payload=payload))

    async def reading() -> tuple[Event | None, TheirEvent | None]:
        ours, theirs = asyncio.StreamReader(), asyncio.StreamReader()
        for reader in (ours, theirs):
            reader.feed_data(sent)
            reader.feed_eof()
        return await read_event(ours), await async_read_event(theirs)

    ours, theirs = asyncio.run(reading())
    assert ours == Event(type=kind, data=data, payload=payload)
    assert theirs is not None
    assert (theirs.type, theirs.data, theirs.payload or b"") == (kind, data, payload)


BROKEN: list[tuple[bytes, type[TranscriberError], str]] = [
    (b"", TranscriberUnavailable, "closed the connection"),
    (b'{"type": "transcript", "data_length": 50}\n{}', TranscriberUnavailable, "closed the connection"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", TranscriberError, "invalid Wyoming event"),
    (b"[1]\n", TranscriberError, "invalid Wyoming event"),
    (b'{"data": {}}\n', TranscriberError, "invalid Wyoming event"),
    (b'{"type": "transcript", "data_length": "9"}\n', TranscriberError, "invalid Wyoming event"),
    (b'{"type": "transcript", "data_length": 99999999999}\n', TranscriberError, "invalid Wyoming event"),
    (b'{"type": "transcript", "data": {"text": 7}}\n', TranscriberError, "without text"),
    (b'{"type": "error", "data": {"text": "no model"}}\n', TranscriberError, "no model"),
    (b"x" * 2_000_000, TranscriberError, "invalid Wyoming event"),
]


@pytest.mark.parametrize("case", range(len(BROKEN)))
async def test_what_a_service_does_wrong_is_an_error_of_ours(case: int) -> None:
    sent, kind, words = BROKEN[case]
    async with WyomingService(lambda samples: sent).running() as service:
        with pytest.raises(kind, match=words):
            await WyomingTranscriber(service.url).transcribe(Audio(data=SAMPLES))


async def test_a_service_that_says_how_sure_it_is_is_heard() -> None:
    sent = json.dumps({"type": "transcript", "data": {"text": "yes", "confidence": 0.75}}).encode() + b"\n"
    async with WyomingService(lambda samples: sent).running() as service:
        heard = await WyomingTranscriber(service.url).transcribe(Audio(data=SAMPLES))
    assert heard == Transcript(text="yes", confidence=0.75)


async def test_a_service_that_never_answers_is_not_waited_for() -> None:
    async with WyomingService(lambda samples: b'{"type": "pong"}\n').running() as service:
        over = asyncio.Event()

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await over.wait()
            writer.close()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(TranscriberUnavailable, match=r"within 0.05 s"):
            await WyomingTranscriber(f"tcp://127.0.0.1:{port}", timeout=0.05).transcribe(Audio(data=SAMPLES))
        over.set()
        silent.close()
        with pytest.raises(TranscriberUnavailable, match="closed the connection"):
            await WyomingTranscriber(service.url).transcribe(Audio(data=SAMPLES))


async def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidAudio, match="audio/ogg"):
        await WyomingTranscriber("tcp://127.0.0.1:9").transcribe(Audio(data=b"x", media_type="audio/ogg"))


@pytest.mark.parametrize("url", ["", "http://a:1", "tcp://a", "tcp://:1", "tcp://a:x", "tcp://a:99999", None])
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(InvalidSetting, match="url"):
        WyomingTranscriber(url)
