"""Seeing it work: metrics, structured logs, traces. Below: the error tree. Above: all that is measured.

Where to read on: `catalogue` (every metric there is, as data), `metrics` (how they are counted), `happenings`
(what is counted and logged when something happens), `calls` (how calls of the manager are timed), `tracing`
(spans, where they are wanted), `requests` (which request is being answered), `logs` (lines of a log),
`exposition` and `sharing` (numbers as Prometheus reads them, also those of several processes).

Nothing that anybody said, and no owner, ever becomes a label, a field or an attribute.
"""

from aforesaid.telemetry.log_events import describe, event
from aforesaid.telemetry.metrics import Counter, Gauge, Histogram, Sample, Telemetry, telemetry
from aforesaid.telemetry.tracing import span

__all__ = ["Counter", "Gauge", "Histogram", "Sample", "Telemetry", "describe", "event", "span", "telemetry"]
