"""The JSON file store: one human-readable document, for small amounts of data and one process.

- `document` converts between text and data.
- `backend` opens the file, holds the data in memory and combines the jobs of many callers into one write.

The behaviour of the store is in `aforesaid.stores.owner_data`.
"""

import os

from aforesaid.errors import InvalidSetting
from aforesaid.model.clock import Clock
from aforesaid.stores._arguments import Address
from aforesaid.stores.json_file.backend import JsonFileBackend

__all__ = ["JsonFileBackend", "backend"]


def backend(address: Address, clock: Clock) -> JsonFileBackend:
    """Open `file:///var/lib/conversations.json`, or `file:conversations.json` in the working folder."""
    address.take()
    return JsonFileBackend(_path(address), clock=clock)


def _path(address: Address) -> str:
    """Return the path: absolute with a leading slash, relative without one."""
    if address.host not in ("", "localhost"):
        raise _refused(address, f"{address.host!r} is read as the name of a machine")
    if not address.path.strip("/"):
        raise _refused(address, "it has no path")
    if "#" in address.url:
        raise _refused(address, "a # in a path is written %23")
    if "\0" in address.path:
        raise _refused(address, "no path has a NUL in it")
    return _without_slash_before_drive(address.path) if os.name == "nt" else address.path


def _without_slash_before_drive(path: str) -> str:
    return path.removeprefix("/") if path[2:3] == ":" else path


def _refused(address: Address, reason: str) -> InvalidSetting:
    return InvalidSetting(
        f"{reason}; a file: URL is file:///absolute/conversations.json or file:relative/conversations.json",
        field="url",
        value=address.url,
    )
