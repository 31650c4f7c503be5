"""Managers, assistants and transcribers for WebSocket connections, and the lifespan of their hub."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from litestar import Litestar

from aforesaid.contracts import PCM, AudioFormat
from aforesaid.errors import AccessError
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from aforesaid.protocol.live import AudioStart
from aforesaid.server.auth.callers import Caller
from aforesaid.server.calls import Service
from aforesaid.server.live.hub import Hub
from aforesaid.server.live.speech import Transcribe
from aforesaid.server.live.turns import Assistant
from aforesaid.voice.assistant import VoiceAssistant, message_of


class ServerServices:
    """Adapt the service of the HTTP routes to the hub."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def manager(self, caller: Caller, owner: str) -> ConversationManager:
        return self._service.manager_for(caller, owner)

    def assistant(self, manager: ConversationManager) -> Assistant:
        return self._service.assistant(manager)

    async def note_refusal(self, action: str, error: AccessError, *, source: str) -> None:
        await self._service.note_refusal(action, error, source=source)

    def transcribe(self, manager: ConversationManager) -> Transcribe:
        return partial(_transcribe, self._service.voice(manager))


async def _transcribe(voice: VoiceAssistant, audio: bytes, start: AudioStart) -> Message:
    pcm = AudioFormat(rate=start.rate, channels=start.channels) if start.media_type == PCM else None
    return message_of(await voice.understand(audio, audio_format=pcm))


def open_while_serving(hub: Hub) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Return a lifespan that drains and closes the hub when the application ends."""

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await hub.drain()
            await hub.close()

    return lifespan
