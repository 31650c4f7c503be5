"""Who answers and who understands what is said, by the settings. Below: agents, voice."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from aforesaid.agents.configured import Assistants
from aforesaid.contracts import Transcriber
from aforesaid.settings import Settings
from aforesaid.voice import transcriber_for


class ServerAssistants:
    """The assistants of all owners, and the one transcriber, if there is one; closed with the server."""

    def __init__(self, assistants: Assistants, transcriber: Transcriber | None) -> None:
        self.assistants = assistants
        self.transcriber = transcriber

    async def close(self) -> None:
        await self.assistants.close()
        if self.transcriber is not None:
            await self.transcriber.close()


def assistants_for(settings: Settings) -> ServerAssistants:
    """Those whom the settings name: without any, the recall agent, and English on board."""
    return ServerAssistants(Assistants(settings.agent), transcriber_for(settings.voice))


def closing(hosts: ServerAssistants) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """For the application's lifespan: what the hosts hold is let go with it."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await hosts.close()

    return lifespan
