"""Answers that are made while they are sent: whatever happens to the reader, nothing stays open."""

import asyncio
import io
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from aforesaid.server.responses import StreamingResponse

SCOPE: Any = {}


async def chunks(count: int) -> AsyncGenerator[bytes, None]:
    for number in range(count):
        yield b"%d" % number


async def hung_up() -> Any:
    return {"type": "http.disconnect"}


async def listening() -> Any:
    await asyncio.Event().wait()


async def test_a_reader_who_has_gone_before_the_first_chunk_leaves_nothing_open() -> None:
    file = io.BytesIO(b"somebody's history")
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await StreamingResponse(chunks(3), media=b"text/plain", closing=file.close)(SCOPE, hung_up, send)
    assert file.closed


async def test_a_connection_that_breaks_while_the_answer_begins_leaves_nothing_open() -> None:
    file = io.BytesIO(b"somebody's history")

    async def send(message: Any) -> None:
        raise OSError("broken pipe")

    with pytest.raises(OSError, match="broken pipe"):
        await StreamingResponse(chunks(3), media=b"text/plain", closing=file.close)(SCOPE, listening, send)
    assert file.closed
