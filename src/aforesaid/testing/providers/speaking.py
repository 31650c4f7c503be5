"""What each provider's module offers, and what they share. Below: `http`, `script`."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from aforesaid.testing.providers.http import Request, Response
from aforesaid.testing.providers.script import Act, Called, Fails, Refuses, Says


class Speaker(Protocol):
    """One provider's HTTP."""

    @property
    def BASE_PATH(self) -> str: ...  # noqa: N802  # a module's constant
    def problems(self, body: dict[str, Any]) -> list[str]: ...
    def wants_stream(self, request: Request) -> bool: ...
    def reply(self, act: Act, request: Request) -> Response: ...
    def stream(self, act: Act, request: Request) -> Response: ...
    def failure(self, act: Fails) -> Response: ...


def as_says(act: Act) -> Says:
    """What is said in any case: a refusal has words too."""
    return act if isinstance(act, Says) else Says(act.words if isinstance(act, Refuses) else "")


def halves(text: str) -> Iterator[str]:
    """The text in two pieces, as a stream brings it."""
    middle = len(text) // 2
    yield from (piece for piece in (text[:middle], text[middle:]) if piece)


def arguments_text(call: Called) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def retry_headers(act: Fails) -> dict[str, str]:
    if act.retry_after is None:
        return {}
    # Milliseconds for those who read them, so that no test waits for a whole second.
    return {"retry-after-ms": f"{act.retry_after * 1000:g}", "retry-after": f"{act.retry_after:g}"}


def cut(events: Sequence[bytes], act: Act) -> tuple[Sequence[bytes], bool]:
    """As many of a stream's events as are sent, and whether the connection breaks then."""
    if not isinstance(act, Says) or act.ending == "whole":
        return events, False
    return events[: max(1, len(events) // 2)], act.ending == "breaks"


def event_stream(events: Sequence[bytes], act: Act) -> Response:
    """Server-sent events, as far as they get."""
    pieces, breaks = cut(events, act)
    return Response(headers={"content-type": "text/event-stream"}, pieces=pieces, breaks=breaks)


def sse(document: Any, *, event: str | None = None) -> bytes:
    """One server-sent event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(document)}\n\n".encode()
