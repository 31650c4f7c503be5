"""Who serves the guests of a server, and the room they meet in. Below: the room. Above: the application."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from recollect.manager import ConversationManager
from recollect.server.auth.callers import Caller
from recollect.server.calls import Service
from recollect.server.live.limits import LiveLimits
from recollect.server.live.room import LiveRoom
from recollect.server.live.speech import Transcribe
from recollect.server.live.turns import Assistant

MakeAssistant = Callable[[ConversationManager], Assistant]


class ServerStaff:
    """The manager of the server's memory, and the assistant of its settings."""

    def __init__(
        self, service: Service, assistant: MakeAssistant, transcribe: Transcribe | None = None
    ) -> None:
        self._service = service
        self._assistant = assistant
        self._transcribe = transcribe

    def manager(self, caller: Caller, owner: str) -> ConversationManager:
        return self._service.manager_for(caller, owner)

    def assistant(self, manager: ConversationManager) -> Assistant:
        return self._assistant(manager)

    def transcriber(self) -> Transcribe | None:
        return self._transcribe


def live_room(
    service: Service,
    assistant: MakeAssistant,
    *,
    transcribe: Transcribe | None = None,
    limits: LiveLimits | None = None,
) -> LiveRoom:
    """The room of a server."""
    return LiveRoom(ServerStaff(service, assistant, transcribe), service.gate, limits)


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
