"""Vectors of an owner's short texts other than messages (notes), cached in memory.

They are few and short, so they are not stored: the first question waits about two milliseconds per text.
"""

from collections.abc import Sequence
from typing import Any

from aforesaid.contracts import Embedder
from aforesaid.search.encoders import encodable_text, encode_texts


class TextVectors:
    """One owner's texts with their vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, Any] = {}

    @property
    def size(self) -> int:
        return len(self._vectors)

    async def similarities(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return each text's similarity to the question. May raise `EncoderFailed`.

        Afterwards only these texts stay cached.
        """
        if not texts:
            return []
        cached = self._vectors
        new = list(dict.fromkeys(text for text in texts if text not in cached))
        rows = await encode_texts(self._embedder, [encodable_text(text) for text in (question, *new)])
        found = {**cached, **dict(zip(new, rows[1:], strict=True))}
        self._vectors = {text: found[text] for text in texts}
        return [float(found[text] @ rows[0]) for text in texts]
