"""Who answers and who understands what is said, by the settings. Below: agents, voice."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from litestar import Litestar

from recollect.agents.choosing import Assistants
from recollect.contracts import Transcriber
from recollect.settings import ServerConfig, Settings
from recollect.voice import EmbeddedTranscriber, OpenAITranscriber, WyomingTranscriber


class Hosts:
    """The assistants of all owners, and the one transcriber; closed with the server."""

    def __init__(self, assistants: Assistants, transcriber: Transcriber) -> None:
        self.assistants = assistants
        self.transcriber = transcriber

    async def close(self) -> None:
        await self.assistants.close()
        await self.transcriber.close()


def hosts_for(settings: Settings) -> Hosts:
    """Those whom the settings name: without any, the recall agent, and English on board."""
    return Hosts(Assistants(settings.agent), transcriber_for(settings.server, settings.agent.provider_key))


def transcriber_for(settings: ServerConfig, key: str = "") -> Transcriber:
    """`embedded`, a Wyoming service at `tcp://…`, or a server with OpenAI's interface at `https://…`."""
    place = settings.transcriber
    if place.startswith("tcp://"):
        return WyomingTranscriber(place)
    if place.startswith(("http://", "https://")):
        return OpenAITranscriber(base_url=place, api_key=key)
    return EmbeddedTranscriber()


def closing(hosts: Hosts) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """For the application's lifespan: what the hosts hold is let go with it."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await hosts.close()

    return lifespan
