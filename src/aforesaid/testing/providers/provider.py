"""A fake provider: takes requests as the real one does, judges them, and replies as it was told.

Below: `http`, `speaking`, the providers' rules.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, Literal, Self

from aforesaid.testing.providers import bedrock, claude, openai_chat, openai_responses
from aforesaid.testing.providers.http import HttpServer, Request, Response
from aforesaid.testing.providers.script import Act, Fails, Garbage, Says, Silence
from aforesaid.testing.providers.speaking import Speaker

Kind = Literal["anthropic", "openai_chat", "openai_responses", "bedrock"]

_SPEAKERS: dict[str, Speaker] = {
    "anthropic": claude,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "bedrock": bedrock,
}


class FakeProvider:
    """One provider on a port of this machine. `will` says what comes next; without it, `otherwise` does."""

    def __init__(self, kind: Kind, *, otherwise: Act | None = None) -> None:
        self._speaker = _SPEAKERS[kind]
        self._script: deque[Act] = deque()
        self._otherwise = otherwise or Fails(500, "nothing was scripted")
        self._server = HttpServer(self._handle)
        self._port = 0
        self.requests: list[dict[str, Any]] = []
        """The bodies of all requests."""
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.refused: list[str] = []
        """What the provider's rules had against any of them."""
        self.asked = asyncio.Event()
        """Set when a request has come in."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._speaker.BASE_PATH}"

    def will(self, *acts: Act) -> None:
        """Do these next, one for each request."""
        self._script.extend(acts)

    async def __aenter__(self) -> Self:
        self._port = await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()

    async def _handle(self, request: Request) -> Response:
        self.requests.append(request.json)
        self.headers.append(request.headers)
        self.paths.append(request.path)
        self.asked.set()
        problems = self._speaker.problems(request.json)
        if problems:
            self.refused += problems
            return self._speaker.failure(Fails(400, "; ".join(problems), kind="invalid_request_error"))
        return await self._perform(self._script.popleft() if self._script else self._otherwise, request)

    async def _perform(self, act: Act, request: Request) -> Response:
        if isinstance(act, Silence):
            await asyncio.Event().wait()
        if isinstance(act, Garbage):
            return Response(headers={"content-type": act.content_type}, body=act.body.encode())
        if isinstance(act, Fails) and not act.inside:
            return self._speaker.failure(act)
        streams = self._speaker.wants_stream(request)
        if isinstance(act, Says) and act.ending != "whole" and not streams:
            whole = self._speaker.reply(act, request)
            return Response(headers=whole.headers, body=whole.body[: len(whole.body) // 2], breaks=True)
        return self._speaker.stream(act, request) if streams else self._speaker.reply(act, request)
