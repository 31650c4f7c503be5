"""The current request and its spans.

    with span("search.candidates"):
        ...

A surface opens a block for each request; log lines contain its id, and metrics store it as an exemplar. While
tracing is off, a span costs one comparison. Otherwise it is a child of the surrounding span, also across
tasks and threads; background work starts a trace of its own, linked to its cause. A span that ends with an
error contains the error's class but not its text. Attributes are our own names, counts and times.
"""

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aforesaid._internal import tasks
from aforesaid._internal.patterns import lazy_pattern
from aforesaid.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider


# The current request, which follows the task and the tasks that it starts


# The ids that a caller may choose: no characters that could break a log line.
SANE = lazy_pattern(r"[A-Za-z0-9._-]{1,64}")


# Ids need not be unguessable. A system call for each would let another thread take the
# interpreter in the middle of a request.
_random = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


class Request(NamedTuple):
    """A request id and, where the request is traced, a trace id."""

    request_id: str
    trace_id: str | None = None

    @property
    def labels(self) -> dict[str, str]:
        """The labels in exemplars and log lines."""
        labels = {"request_id": self.request_id}
        return labels if self.trace_id is None else labels | {"trace_id": self.trace_id}


current: ContextVar[Request | None] = ContextVar("aforesaid_request", default=None)


def request_id_from(given: str | None) -> str:
    """Return the caller's id if it is valid, otherwise a new one."""
    return given if given is not None and SANE.fullmatch(given) else f"{_random.getrandbits(128):032x}"


@contextmanager
def answering(request: Request) -> Iterator[Request]:
    """Make this the current request inside the block."""
    token = current.set(request)
    try:
        yield request
    finally:
        current.reset(token)


# Spans. OpenTelemetry is imported only when tracing is turned on.


Attribute = str | int | float | bool


class Spanning(Protocol):
    """A block to which attributes can be added while it runs."""

    def __enter__(self) -> "Spanning": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def note(self, **attributes: Attribute) -> None: ...


class _Nothing:
    """A span while tracing is off."""

    __slots__ = ()

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def note(self, **attributes: Attribute) -> None:
        return None


class _Traced:
    """A span that goes to the tracer."""

    __slots__ = ("_block", "_span")

    def __init__(self, by: "Tracer", name: str, attributes: Mapping[str, Attribute], kind: Any) -> None:
        self._block = by.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            links=_links(),
            # Either would write the error's text into the span.
            record_exception=False,
            set_status_on_exception=False,
        )

    def __enter__(self) -> "_Traced":
        self._span: Span = self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR)
            self._span.set_attribute("error.type", kind.__name__)
        self._block.__exit__(kind, error, trace)

    def note(self, **attributes: Attribute) -> None:
        self._span.set_attributes(_dotted(attributes))


def _links() -> "list[Link]":
    """Link the first span of background work to the span that caused it."""
    cause = tasks.origin.get()
    if cause is None:
        return []
    from opentelemetry.trace import Link, get_current_span

    return [] if get_current_span().get_span_context().is_valid else [Link(cause)]


def _current_span() -> "SpanContext | None":
    """Return the current span, to which background work that starts now is linked."""
    if tracer is None:
        return None
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    # Work that starts more work in the background: the first cause is the one that a reader looks for.
    return found if found.is_valid else tasks.origin.get()


tasks.origins.find = _current_span

_NOTHING = _Nothing()
# The tracer; None while tracing is off. Set by `trace_with`.
tracer: "Tracer | None" = None


def span(name: str, **attributes: Attribute) -> Spanning:
    """Return a block as a span; underscores in attribute names become dots in the trace."""
    if tracer is None:
        return _NOTHING
    from opentelemetry.trace import SpanKind

    return _Traced(tracer, f"aforesaid.{name}", _dotted(attributes), SpanKind.INTERNAL)


@contextmanager
def incoming(name: str, headers: Mapping[str, str], **attributes: Attribute) -> Iterator[Spanning]:
    """Open the span of an incoming request: a child of the span in its `traceparent`, if any."""
    if tracer is None:
        yield _NOTHING
        return
    from opentelemetry.context import attach, detach
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = attach(TraceContextTextMapPropagator().extract(dict(headers)))
    try:
        with _Traced(tracer, f"aforesaid.{name}", _dotted(attributes), SpanKind.SERVER) as opened:
            yield opened
    finally:
        detach(token)


def outgoing() -> dict[str, str]:
    """Return the headers that continue this trace in an outgoing request; empty while tracing is off."""
    if tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def trace_id() -> str | None:
    """Return the id of the current trace, where it is recorded."""
    if tracer is None:
        return None
    from opentelemetry.trace import format_trace_id, get_current_span

    found = get_current_span().get_span_context()
    return format_trace_id(found.trace_id) if found.is_valid and found.trace_flags.sampled else None


def trace_with(provider: "TracerProvider | None") -> None:
    """Send all spans to this provider; None turns tracing off."""
    global tracer  # noqa: PLW0603  one tracer per process, as with the log
    tracer = None if provider is None else provider.get_tracer("aforesaid")


@contextmanager
def tracing_to(url: str, *, share: float = 1.0) -> Iterator[None]:
    """Send spans by OTLP over HTTP to a collector until the block ends; an empty URL disables tracing.

    `share` is the share of traces starting here that are recorded; one that started elsewhere follows its
    parent. A thread sends the spans; while the collector is unavailable, spans are dropped.
    """
    if not url:
        yield
        return
    provider = _exporting(url, share)
    trace_with(provider)
    try:
        yield
    finally:
        trace_with(None)
        provider.shutdown()


def _exporting(url: str, share: float) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError:
        raise MissingExtra("tracing", extra="traces") from None
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(share)),
        resource=Resource.create({"service.name": "aforesaid"}),
        shutdown_on_exit=False,
    )
    address = url if url.rstrip("/").endswith("/v1/traces") else f"{url.rstrip('/')}/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return provider


def _dotted(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {name.replace("_", "."): value for name, value in attributes.items()}
