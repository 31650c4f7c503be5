"""Google ADK: `DatabaseSessionService` over SQLite. A turn is two `append_event`, question and answer.

It has no call for a whole history: that goes in through its own storage classes, in one transaction.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.peers.contract import WINDOW, Peer, roles

NAMES = {"app_name": "bench", "user_id": "erin"}


class DatabaseSessions(Peer):
    packages: ClassVar[Sequence[str]] = ("google-adk", "sqlalchemy", "aiosqlite")
    modules: ClassVar[Sequence[str]] = ("google.adk.sessions", "google.adk.sessions.database_session_service")

    def __init__(self) -> None:
        self.service: Any = None
        self._held: dict[str, Any] = {}

    async def open(self, place: str) -> None:
        from google.adk.sessions import DatabaseSessionService

        self.service = DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{place}/adk.db")

    async def of(self, session: str, *, fresh: bool) -> Any:
        """The session, read from the database or held since it was."""
        if fresh or session not in self._held:
            self._held[session] = await self.read(session, WINDOW) or await self._created(session)
        return self._held[session]

    async def read(self, session: str, most: int | None) -> Any:
        from google.adk.sessions.base_session_service import GetSessionConfig

        config = None if most is None else GetSessionConfig(num_recent_events=most)
        return await self.service.get_session(**NAMES, session_id=session, config=config)

    async def _created(self, session: str) -> Any:
        return await self.service.create_session(**NAMES, session_id=session)

    async def append_turn(self, session: str, question: str, answer: str, *, fresh: bool = False) -> None:
        handle = await self.of(session, fresh=fresh)
        for event in _events([question, answer]):
            await self.service.append_event(handle, event)

    async def grow(self, session: str, texts: Sequence[str]) -> None:
        handle = await self.of(session, fresh=True)
        rows = self.service._get_schema_classes().StorageEvent
        async with self.service.database_session_factory() as database:
            database.add_all(rows.from_event(handle, event) for event in _events(texts))
            await database.commit()
        self._held.pop(session)

    async def window(self, session: str, *, fresh: bool = False) -> list[str]:
        return _texts(await self.read(session, WINDOW))

    async def everything(self, session: str) -> list[str]:
        return _texts(await self.read(session, None))

    async def close(self) -> None:
        await self.service.close()


def _events(texts: Sequence[str]) -> list[Any]:
    """Events with times that rise: it puts events of one moment in the order of their random ids."""
    from google.adk.events import Event
    from google.genai import types

    begin = time.time() - len(texts) * 1e-5
    return [
        Event(
            invocation_id=str(uuid.uuid4()),
            author=role,
            timestamp=begin + number * 1e-5,
            content=types.Content(
                role="user" if role == "user" else "model", parts=[types.Part.from_text(text=text)]
            ),
        )
        for number, (role, text) in enumerate(roles(texts))
    ]


def _texts(session: Any) -> list[str]:
    return [] if session is None else [event.content.parts[0].text for event in session.events]
