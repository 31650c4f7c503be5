"""Reading numbers back, as a test or a scraper does."""

from collections.abc import Mapping
from typing import Any

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from aforesaid.telemetry import Telemetry, telemetry
from aforesaid.telemetry.exposition import OPEN


def value(name: str, labels: Mapping[str, str] | None = None, metrics: Telemetry = telemetry) -> float:
    """A number now, over all series that have these labels; 0 where there is none yet."""
    wanted = (labels or {}).items()
    return sum(
        one.value for one in metrics.samples() if one.name == name and wanted <= dict(one.labels).items()
    )


def parsed(text: str, form: str) -> dict[str, Any]:
    """The families of an exposition by name, as the parser of Prometheus's own client reads them."""
    parse: Any = openmetrics.text_string_to_metric_families if form == OPEN else classic
    return {family.name: family for family in parse(text)}
