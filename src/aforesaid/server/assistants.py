"""Assistants and transcriber of a server, built from the settings."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from aforesaid.agents.configured import Assistants
from aforesaid.contracts import Transcriber
from aforesaid.settings import Settings
from aforesaid.voice import transcriber_for


class ServerAssistants:
    """The assistants of all owners and the optional transcriber."""

    def __init__(self, assistants: Assistants, transcriber: Transcriber | None) -> None:
        self.assistants = assistants
        self.transcriber = transcriber

    async def close(self) -> None:
        await self.assistants.close()
        if self.transcriber is not None:
            await self.transcriber.close()


def assistants_for(settings: Settings) -> ServerAssistants:
    """Build assistants and transcriber. Defaults: the recall agent and the local English transcriber."""
    return ServerAssistants(Assistants(settings.agent), transcriber_for(settings.voice))


def close_with_server(
    assistants: ServerAssistants,
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Return a lifespan that closes the assistants when the application ends."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await assistants.close()

    return lifespan
