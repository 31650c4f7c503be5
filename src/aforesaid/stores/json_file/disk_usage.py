"""How large the file is. Above: `stores.weights`."""

import asyncio
from pathlib import Path

from aforesaid.stores.json_file.backend import JsonFileBackend


async def weigh(backend: JsonFileBackend) -> dict[str, int]:
    """Bytes of the document; none before the first turn has made the file."""
    return {"document": await asyncio.to_thread(_size, Path(backend.path))}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
