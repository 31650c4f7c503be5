"""Write tests/data/sqlite-v1.db: a small file as the store writes it at the present schema version.

    python scripts/sqlite_sample.py

A file is made once for each schema version and then kept as it is, so that later releases are held to
reading it: `tests/unit/stores/test_sqlite_versions.py`. It refuses to write over one that is there.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aforesaid.model.conversations import Changes, started
from aforesaid.model.messages import Message
from aforesaid.stores.sqlite import SQLiteBackend

FOLDER = Path(__file__).parents[1] / "tests" / "data"
START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
KITCHEN = "0195503a-7f10-7c3e-9d5a-2b6f0c1e4a01"
PHONE = "0195503a-7f10-7c3e-9d5a-2b6f0c1e4a02"
CLIENT = "0195503a-7f10-7c3e-9d5a-2b6f0c1e4a03"


class Clock:
    """A minute later at every look, so that the file is the same whenever it is made."""

    def __init__(self) -> None:
        self._now = START

    def __call__(self) -> datetime:
        self._now += timedelta(minutes=1)
        return self._now


async def write(path: Path) -> int:
    """Fill the file; returns its schema version."""
    backend = SQLiteBackend(str(path), clock=Clock())
    await backend.open()
    try:
        await _fill(backend)
        version = await backend.schema_version()
    finally:
        await backend.close()
    return version.found


async def _fill(backend: SQLiteBackend) -> None:
    erin = backend.of("erin")
    await erin.resume("kitchen", started(KITCHEN, now=START, ttl=None, channel="voice"))
    await erin.bind("hall", KITCHEN)
    await erin.append(KITCHEN, [Message(role="user", content="Is the back door locked?", message_id="m1")])
    await erin.append(
        KITCHEN,
        [
            Message(
                role="assistant",
                content=[{"type": "text", "text": "NUL \0, half a pair \ud800, 家, 😀"}],
                agent_name="home",
                tags=("doors",),
                dialect="anthropic",
                extra={"stop_reason": "end_turn"},
                tokens={"estimate": 9},
            ),
            Message(role="user", content={"n": [1, 2.5, None]}, timestamp=START - timedelta(days=900)),
        ],
    )
    changes = Changes(client_id=CLIENT, client_name="Lee", subject="Doors", notes="n", tags=("b", "a"))
    await erin.update(KITCHEN, changes)
    await erin.put_document("note", "coffee", b"black")
    await erin.put_document("vectors/x", "0001", b"\0\xff", conversation_id=KITCHEN)
    sam = backend.of("sam \u2028 '%_")
    await sam.create(started(PHONE, now=START, ttl=None, channel="phone", priority="urgent"))
    await sam.append(PHONE, [Message(role="user", content=f"message {number}") for number in range(20)])
    await sam.rewrite(PHONE, [Message(role="user", content="all that is left", content_type="audio")])


def main() -> None:
    from aforesaid.stores._sql_files import migrations
    from aforesaid.stores.sqlite.connections import PACKAGE

    path = FOLDER / f"sqlite-v{len(migrations(PACKAGE))}.db"
    if path.exists():
        sys.exit(f"{path.name} is there already; it is kept as it is")
    asyncio.run(write(path))


if __name__ == "__main__":
    main()
