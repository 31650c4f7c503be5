"""A fake provider that validates requests and returns scripted replies."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, Literal, Self

from aforesaid.testing.providers import bedrock, claude, openai_chat, openai_responses
from aforesaid.testing.providers.protocol import (
    Act,
    Fails,
    Garbage,
    HttpServer,
    ProviderApi,
    Request,
    Response,
    Says,
    Silence,
)

Kind = Literal["anthropic", "openai_chat", "openai_responses", "bedrock"]

_APIS: dict[str, ProviderApi] = {
    "anthropic": claude,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "bedrock": bedrock,
}


class FakeProvider:
    """A provider on a local port. `will` scripts the next replies; `otherwise` is the default reply."""

    def __init__(self, kind: Kind, *, otherwise: Act | None = None) -> None:
        self._api = _APIS[kind]
        self._script: deque[Act] = deque()
        self._otherwise = otherwise or Fails(500, "nothing was scripted")
        self._server = HttpServer(self._handle)
        self._port = 0
        # Bodies of all requests.
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        # Rule violations in any of them.
        self.refused: list[str] = []
        # Set when a request has arrived.
        self.asked = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._api.BASE_PATH}"

    def will(self, *acts: Act) -> None:
        """Script the next replies, one per request."""
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
        problems = self._api.problems(request.json)
        if problems:
            self.refused += problems
            return self._api.failure(Fails(400, "; ".join(problems), kind="invalid_request_error"))
        return await self._perform(self._script.popleft() if self._script else self._otherwise, request)

    async def _perform(self, act: Act, request: Request) -> Response:
        if isinstance(act, Silence):
            await asyncio.Event().wait()
        if isinstance(act, Garbage):
            return Response(headers={"content-type": act.content_type}, body=act.body.encode())
        if isinstance(act, Fails) and not act.inside:
            return self._api.failure(act)
        streams = self._api.wants_stream(request)
        if isinstance(act, Says) and act.ending != "whole" and not streams:
            whole = self._api.reply(act, request)
            return Response(headers=whole.headers, body=whole.body[: len(whole.body) // 2], breaks=True)
        return self._api.stream(act, request) if streams else self._api.reply(act, request)
