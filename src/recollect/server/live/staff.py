"""Who serves the guests of a server, and the room they meet in. Below: the room. Above: the application."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from recollect.manager import ConversationManager
from recollect.server.auth.callers import Caller
from recollect.server.calls import Service
from recollect.server.live.room import LiveRoom
from recollect.server.live.speech import Transcribe
from recollect.server.live.turns import Assistant

Understanding = Callable[[Assistant], Transcribe]
"""Who understands what is said by voice, given who answers."""


class ServerStaff:
    """The manager of the server's memory, the assistant and the transcriber of its settings."""

    def __init__(self, service: Service, understanding: Understanding | None = None) -> None:
        self._service = service
        self._understanding = understanding

    def manager(self, caller: Caller, owner: str) -> ConversationManager:
        return self._service.manager_for(caller, owner)

    def assistant(self, manager: ConversationManager) -> Assistant:
        return self._service.assistant(manager)

    def transcriber(self, assistant: Assistant) -> Transcribe | None:
        return None if self._understanding is None else self._understanding(assistant)


def open_while_serving(room: LiveRoom) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """For the application's lifespan: what is still under way when it ends is finished first."""

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await room.drain()
            await room.close()

    return lifespan
