"""Metrics, structured logs and traces.

    metrics           every metric as data; counters, gauges and histograms
    events            functions that count, time and log what happens to conversations
    tracing           the current request, and optional spans
    logs              log events and their format
    exposition        Prometheus text formats, and the sum over several processes
    resources         file handles and disks

Content and owners are never a label, a field or an attribute.
"""

from aforesaid.telemetry.logs import describe, event
from aforesaid.telemetry.metrics import Counter, Gauge, Histogram, Sample, Telemetry, telemetry
from aforesaid.telemetry.tracing import span

__all__ = ["Counter", "Gauge", "Histogram", "Sample", "Telemetry", "describe", "event", "span", "telemetry"]
