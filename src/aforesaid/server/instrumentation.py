"""Count, time, trace and log every request and connection.

This is the outermost middleware, so it also sees requests that the framework refuses. Metrics, logs and
traces have method, route template and status, never path, query or body. The request id is the caller's
`X-Request-ID` if it is valid, else a new one. It is in the response, in log lines and in exemplars.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from aforesaid.telemetry import Counter, Histogram, Telemetry, event, telemetry, tracing
from aforesaid.telemetry.tracing import Request, current, request_id_from

log = logging.getLogger("aforesaid.requests")

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
# The route label of a request that matches no route.
UNMATCHED = "(none)"
# Close codes with a metric label. Clients may send any code; others are counted as `other`.
CODES = frozenset({*range(1000, 1016), *range(4400, 4600)})
_TRACING = (b"traceparent", b"tracestate")


class Instrumentation:
    """ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        draining: Callable[[], bool] = lambda: False,
        routes: Iterable[tuple[str, str]] = (),
        metrics: Telemetry = telemetry,
    ) -> None:
        self._app = app
        self._draining = draining
        self._metrics = metrics
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._running = 0
        self._opened = metrics.counter("aforesaid_live_opened_total")
        self._received, self._sent = _Frames(metrics, "in"), _Frames(metrics, "out")
        metrics.gauge("aforesaid_http_requests_in_progress", "", lambda: float(self._running))
        # Series of failures exist from the start: a rate does not see the first value of a series.
        for method, route in routes:
            for status in (500, 503):
                self._counter(method, route, status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            await self._request(scope, receive, send)
        elif scope["type"] == ScopeType.WEBSOCKET:
            await self._connection(scope, receive, send)
        else:
            await self._app(scope, receive, send)  # the lifespan

    # Requests

    async def _request(self, scope: Any, receive: Receive, send: Send) -> None:
        request_id = _request_id(scope["headers"])
        added = [(b"x-request-id", request_id.encode())]
        status = 500

        async def send_response(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._draining():
                    # A proxy must not reuse a connection that closes soon.
                    added.append((b"connection", b"close"))
                message["headers"] = [*message["headers"], *added]
            await send(message)

        began = perf_counter()
        self._running += 1
        token = current.set(Request(request_id))
        try:
            if tracing.tracer is None:
                await self._app(scope, receive, send_response)
            else:
                await self._traced(scope, receive, send_response, request_id)
        finally:
            self._running -= 1
            self._note(scope, status, perf_counter() - began)
            current.reset(token)

    async def _traced(self, scope: Any, receive: Receive, send: Send, request_id: str) -> None:
        with ExitStack() as stack:
            span = stack.enter_context(tracing.incoming("request", _trace_headers(scope["headers"])))
            token = current.set(Request(request_id, tracing.trace_id()))
            stack.callback(current.reset, token)
            try:
                await self._app(scope, receive, send)
            finally:
                span.note(http_request_method=_method(scope), http_route=_route(scope), request_id=request_id)

    def _note(self, scope: Any, status: int, seconds: float) -> None:
        method, route = _method(scope), _route(scope)
        self._counter(method, route, status).add()
        self._histogram(method, route).observe(seconds)
        level = logging.WARNING if status >= 500 else logging.INFO
        if log.isEnabledFor(level):
            fields = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 3)}
            event(log, level, "request", f"{method} {route} {status}", **fields)

    def _counter(self, method: str, route: str, status: int) -> Counter:
        found = self._requests.get((method, route, status))
        if found is None:
            found = self._metrics.counter(
                "aforesaid_http_requests_total", method=method, route=route, status=str(status)
            )
            self._requests[method, route, status] = found
        return found

    def _histogram(self, method: str, route: str) -> Histogram:
        found = self._seconds.get((method, route))
        if found is None:
            found = self._metrics.histogram("aforesaid_http_request_seconds", method=method, route=route)
            self._seconds[method, route] = found
        return found

    # Connections

    async def _connection(self, scope: Any, receive: Receive, send: Send) -> None:
        request_id = _request_id(scope["headers"])
        code = 1006  # abnormal closure: no close frame

        async def receive_frame() -> Any:
            nonlocal code
            message = await receive()
            if message["type"] == "websocket.receive":
                self._received.of(message).value += 1
            elif message["type"] == "websocket.disconnect":
                code = message.get("code") or code
            return message

        async def send_frame(message: Message) -> None:
            nonlocal code
            if message["type"] == "websocket.send":
                self._sent.of(message).value += 1
            elif message["type"] == "websocket.close":
                code = message.get("code") or code
            await send(message)

        self._opened.add()
        token = current.set(Request(request_id))
        event(log, logging.INFO, "connection_opened", "connection opened")
        try:
            await self._app(scope, receive_frame, send_frame)
        finally:
            self._closed(code)
            current.reset(token)

    def _closed(self, code: int) -> None:
        label = str(code) if code in CODES else "other"
        self._metrics.counter("aforesaid_live_closed_total", code=label).add()
        event(log, logging.INFO, "connection_closed", "connection closed", code=label)


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"x-request-id":
            return request_id_from(value.decode("latin-1"))
    return request_id_from(None)


def _trace_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in headers if name in _TRACING}


def _method(scope: Any) -> str:
    method: str = scope["method"]
    return method if method in METHODS else "other"


def _route(scope: Any) -> str:
    """Return the route template, such as `/v1/conversations/{conversation_id}`."""
    return scope.get("path_template") or UNMATCHED


class _Frames:
    """Frame counters of one direction by kind."""

    def __init__(self, metrics: Telemetry, direction: str) -> None:
        self._text, self._binary = (
            metrics.counter("aforesaid_live_frames_total", direction=direction, kind=kind)
            for kind in ("text", "binary")
        )

    def of(self, message: Any) -> Counter:
        return self._text if message.get("text") is not None else self._binary
