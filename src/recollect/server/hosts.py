"""Who answers and who understands what is said, by the settings. Below: agents, voice."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from recollect.agents.choosing import Assistants
from recollect.contracts import Transcriber
from recollect.settings import Settings
from recollect.voice import transcriber_for


class Hosts:
    """The assistants of all owners, and the one transcriber, if there is one; closed with the server."""

    def __init__(self, assistants: Assistants, transcriber: Transcriber | None) -> None:
        self.assistants = assistants
        self.transcriber = transcriber

    async def close(self) -> None:
        await self.assistants.close()
        if self.transcriber is not None:
            await self.transcriber.close()


def hosts_for(settings: Settings) -> Hosts:
    """Those whom the settings name: without any, the recall agent, and English on board."""
    return Hosts(Assistants(settings.agent), transcriber_for(settings.voice))


def closing(hosts: Hosts) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """For the application's lifespan: what the hosts hold is let go with it."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await hosts.close()

    return lifespan
