"""Size of the JSON file."""

import asyncio
from pathlib import Path

from aforesaid.stores.json_file.backend import JsonFileBackend


async def measure(backend: JsonFileBackend) -> dict[str, int]:
    """Return the bytes of the document."""
    return {"document": await asyncio.to_thread(_size, Path(backend.path))}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
