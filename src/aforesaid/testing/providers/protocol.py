"""The interface of a provider's module, and helpers that they share."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from aforesaid.testing.providers.http import Request, Response
from aforesaid.testing.providers.script import Act, Called, Fails, Refuses, Says


class ProviderApi(Protocol):
    """One provider's HTTP API."""

    @property
    def BASE_PATH(self) -> str: ...  # noqa: N802  # a module's constant
    def problems(self, body: dict[str, Any]) -> list[str]: ...
    def wants_stream(self, request: Request) -> bool: ...
    def reply(self, act: Act, request: Request) -> Response: ...
    def stream(self, act: Act, request: Request) -> Response: ...
    def failure(self, act: Fails) -> Response: ...


def as_says(act: Act) -> Says:
    """Return the reply; a refusal becomes one with its text."""
    return act if isinstance(act, Says) else Says(act.words if isinstance(act, Refuses) else "")


def halves(text: str) -> Iterator[str]:
    """Yield the text in two pieces, as a stream does."""
    middle = len(text) // 2
    yield from (piece for piece in (text[:middle], text[middle:]) if piece)


def arguments_text(call: Called) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def retry_headers(act: Fails) -> dict[str, str]:
    if act.retry_after is None:
        return {}
    # SDKs that read milliseconds do not make a test wait for a whole second.
    return {"retry-after-ms": f"{act.retry_after * 1000:g}", "retry-after": f"{act.retry_after:g}"}


def cut(events: Sequence[bytes], act: Act) -> tuple[Sequence[bytes], bool]:
    """Return the events that are sent, and whether the connection then breaks."""
    if not isinstance(act, Says) or act.ending == "whole":
        return events, False
    return events[: max(1, len(events) // 2)], act.ending == "breaks"


def event_stream(events: Sequence[bytes], act: Act) -> Response:
    """Return server-sent events, truncated as the reply requires."""
    pieces, breaks = cut(events, act)
    return Response(headers={"content-type": "text/event-stream"}, pieces=pieces, breaks=breaks)


def sse(document: Any, *, event: str | None = None) -> bytes:
    """Encode one server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(document)}\n\n".encode()
