"""Spans kept in memory, to be looked at."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aforesaid.telemetry.tracing import trace_with


class Spans:
    """What was traced."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> tuple[Any, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> Any:
        """The one span of this name."""
        (found,) = [span for span in self.all if span.name == f"aforesaid.{name}"]
        return found

    def parent_of(self, span: Any) -> Any:
        """The span around it; None for the first."""
        wanted = None if span.parent is None else span.parent.span_id
        return next((one for one in self.all if one.context.span_id == wanted), None)

    def path_to(self, name: str) -> list[str]:
        """The names of the spans around it, from the outside in."""
        path, span = [], self.named(name)
        while span is not None:
            path.append(span.name.removeprefix("aforesaid."))
            span = self.parent_of(span)
        return path[::-1]

    def text(self) -> str:
        """Everything that a collector would get to see."""
        return "\n".join(span.to_json() for span in self.all)


@contextmanager
def traced() -> Iterator[Spans]:
    """Spans of the block are kept."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_with(provider)
    try:
        yield Spans(exporter)
    finally:
        trace_with(None)
        provider.shutdown()
