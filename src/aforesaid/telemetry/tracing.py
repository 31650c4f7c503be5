"""Spans, for whoever traces. Below: OpenTelemetry, imported when tracing is turned on, not before.

    with span("search.candidates"):
        ...

Off, a span costs a look at a variable. On, it is a child of the span around it, also across tasks and
threads. A span that ends with an error says the error's class and nothing of its words: attributes are names
of ours, counts and times.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from aforesaid.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

Attribute = str | int | float | bool


class Spanning(Protocol):
    """What `span` gives: a block, to which attributes can be added while it runs."""

    def __enter__(self) -> "Spanning": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def note(self, **attributes: Attribute) -> None: ...


class _Nothing:
    """A span while nobody traces."""

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
            # Either would write the error's words into the span.
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


_NOTHING = _Nothing()
tracer: "Tracer | None" = None
"""Who takes the spans; None while nobody traces. Set by `trace_with`."""


def span(name: str, **attributes: Attribute) -> Spanning:
    """A block as a span; an underscore in an attribute's name is a dot in the trace."""
    if tracer is None:
        return _NOTHING
    from opentelemetry.trace import SpanKind

    return _Traced(tracer, f"aforesaid.{name}", _dotted(attributes), SpanKind.INTERNAL)


@contextmanager
def incoming(name: str, headers: Mapping[str, str], **attributes: Attribute) -> Iterator[Spanning]:
    """The span of a request from outside: a child of the span that its `traceparent` names, if any."""
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
    """The headers by which a request that is sent now goes on in this trace; none while nobody traces."""
    if tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


def trace_id() -> str | None:
    """The id of the trace that is under way, where it is recorded."""
    if tracer is None:
        return None
    from opentelemetry.trace import format_trace_id, get_current_span

    found = get_current_span().get_span_context()
    return format_trace_id(found.trace_id) if found.is_valid and found.trace_flags.sampled else None


def trace_with(provider: "TracerProvider | None") -> None:
    """Hand all spans to this provider from now on; None turns tracing off."""
    global tracer  # noqa: PLW0603  one tracer a process, as with the log
    tracer = None if provider is None else provider.get_tracer("aforesaid")


@contextmanager
def tracing_to(url: str, *, share: float = 1.0) -> Iterator[None]:
    """Send spans by OTLP over HTTP to a collector, until the block ends; an empty URL traces nothing.

    `share`: of traces that begin here, how many are recorded; one that began elsewhere is recorded if it is
    there. Spans are sent from a thread of their own; a collector that is away costs spans, and nothing else.
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
