"""`Models(preload=True)`: the encoder is loaded when a memory is opened, before the first question."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy
import pytest

import aforesaid


class NotingEncoder:
    """An encoder that notes that it was used."""

    name, dimension = "noting", 2

    def __init__(self, *, is_broken: bool = False) -> None:
        self.used = threading.Event()
        self._is_broken = is_broken

    def embed(self, texts: Sequence[str]) -> Any:
        self.used.set()
        if self._is_broken:
            raise OSError("no weights")
        return numpy.ones((len(texts), 2), numpy.float32)


async def test_the_encoder_is_loaded_before_the_first_question() -> None:
    encoder = NotingEncoder()
    async with aforesaid.open(models=aforesaid.Models(embedder=encoder, preload=True)):
        assert await asyncio.to_thread(encoder.used.wait, 60)


async def test_by_default_nothing_is_loaded_before_it_is_needed() -> None:
    encoder = NotingEncoder()
    async with aforesaid.open(models=aforesaid.Models(embedder=encoder)) as memory:
        await memory.of("erin").get_or_create_conversation("kitchen")
    assert not encoder.used.is_set()


async def test_an_encoder_that_cannot_be_loaded_is_logged_and_the_memory_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    encoder, logged = NotingEncoder(is_broken=True), asyncio.Event()
    logger = logging.getLogger("aforesaid.memory")
    handler = logging.Handler()
    handler.emit = lambda record: logged.set()  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        async with aforesaid.open(models=aforesaid.Models(embedder=encoder, preload=True)) as memory:
            await asyncio.wait_for(logged.wait(), 60)
            erin = memory.of("erin")
            async with erin.turn("kitchen") as turn:
                turn.user("The leeks are behind the shed.")
                turn.assistant("Noted.")
            assert (await erin.search("leeks")).passages
    finally:
        logger.removeHandler(handler)
    assert "messages will be searched by words only" in caplog.text
    assert "EncoderFailed after OSError" in caplog.text
