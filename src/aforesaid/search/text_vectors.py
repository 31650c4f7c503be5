"""Vectors of short texts that are no messages, held in memory: notes. Below: encoders. Above: the room.

They are few and short, so they are not kept: who asks first waits a moment, two milliseconds for each.
"""

from collections.abc import Sequence
from typing import Any

from aforesaid.contracts import Embedder
from aforesaid.search.encoders import encoded_all, readable


class TextVectors:
    """One owner's texts, each with its vector."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Any] = {}

    @property
    def size(self) -> int:
        return len(self._known)

    async def similarities(self, question: str, texts: Sequence[str]) -> list[float]:
        """How near each text is to the question. Only these texts are held afterwards. May raise
        `EncoderFailed`."""
        if not texts:
            return []
        known = self._known
        new = list(dict.fromkeys(text for text in texts if text not in known))
        rows = await encoded_all(self._embedder, [readable(text) for text in (question, *new)])
        found = {**known, **dict(zip(new, rows[1:], strict=True))}
        self._known = {text: found[text] for text in texts}
        return [float(found[text] @ rows[0]) for text in texts]
