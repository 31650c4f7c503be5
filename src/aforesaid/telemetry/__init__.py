"""Metrics, structured logs and traces.

    catalogue         every metric, as data
    metrics           counters, gauges and histograms
    events            functions that count and log what happens to conversations
    instrumentation   timing of calls and blocks
    tracing           the current request, and optional spans
    logs              log events and their format
    exposition        Prometheus text formats
    aggregation       the sum over several processes

Content and owners are never a label, a field or an attribute.
"""

from aforesaid.telemetry.logs import describe, event
from aforesaid.telemetry.metrics import Counter, Gauge, Histogram, Sample, Telemetry, telemetry
from aforesaid.telemetry.tracing import span

__all__ = ["Counter", "Gauge", "Histogram", "Sample", "Telemetry", "describe", "event", "span", "telemetry"]
