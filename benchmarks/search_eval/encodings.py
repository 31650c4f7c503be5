"""Keep an encoder's vectors in a file, because a second run encodes the same texts."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy

from aforesaid.contracts import Embedder


class CachedEncoder:
    """An encoder that encodes each text once. `save` writes the vectors."""

    def __init__(self, encoder: Embedder, folder: Path) -> None:
        self._encoder = encoder
        self.name, self.dimension = encoder.name, encoder.dimension
        self._file = folder / f"{encoder.name}.npz"
        self._rows: dict[str, Any] = {}
        if self._file.exists():
            with numpy.load(self._file) as stored:
                self._rows = dict(zip(stored["keys"].tolist(), stored["rows"], strict=True))

    def embed(self, texts: Sequence[str]) -> Any:
        keys = [sha256(text.encode()).hexdigest()[:32] for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if new:
            rows = numpy.asarray(self._encoder.embed(list(new.values())), numpy.float32)
            self._rows.update(zip(new, rows, strict=True))
        return numpy.stack([self._rows[key] for key in keys])

    def save(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        numpy.savez(self._file, keys=list(self._rows), rows=numpy.stack(list(self._rows.values())))
