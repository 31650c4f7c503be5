"""An encoder for tests: small, deterministic, and with a sense of which words are alike."""

import asyncio
import threading
import zlib
from collections.abc import Sequence
from typing import Any

import numpy

from aforesaid.search.analysis import terms_of

ALIKE = {"puppi": "dog", "hound": "dog", "forecast": "weather", "automobil": "car"}


class WordEncoder:
    """Every term has a direction of its own; a few share theirs. It counts what it was asked."""

    def __init__(self, name: str = "words-1", dimension: int = 64) -> None:
        self.name = name
        self.dimension = dimension
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        rows = numpy.stack([self._row(text) for text in texts])
        return (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype(numpy.float32)

    def _row(self, text: str) -> Any:
        row = numpy.full(self.dimension, 0.05)
        for term in terms_of(text):
            seed = zlib.crc32(f"{self.name}{ALIKE.get(term, term)}".encode())
            row += numpy.random.default_rng(seed).normal(size=self.dimension)
        return row


class HeldEncoder(WordEncoder):
    """It signals when it begins with its first texts with a certain word, and ends on request."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word
        self._loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        self.may_end = threading.Event()

    def embed(self, texts: Sequence[str]) -> Any:
        if any(self._word in text for text in texts):
            self._loop.call_soon_threadsafe(self.begun.set)
            assert self.may_end.wait(120)
        return super().embed(texts)
