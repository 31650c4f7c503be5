"""The server itself: is it there, is it ready. Open to all: neither tells anything about anybody."""

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from recollect.contracts import JOURNAL
from recollect.errors import RecollectError
from recollect.server.answers import as_json
from recollect.server.calls import Service


def operations(service: Service) -> list[HTTPRouteHandler]:
    """The routes without a prefix."""

    @get("/health", include_in_schema=False)
    async def health() -> ASGIApp:
        return as_json({"status": "ok"})

    @get("/ready", include_in_schema=False)
    async def ready() -> ASGIApp:
        status, degraded = await _readiness(service)
        return as_json({"status": status, "degraded": degraded}, status=200 if status == "ready" else 503)

    return [health, ready]


async def _readiness(service: Service) -> tuple[str, bool]:
    """Whether requests are taken: the store answers, if only from its last known state."""
    if service.draining.is_set():
        return "draining", False
    store = service.memory.backend.of(JOURNAL)
    try:
        await store.get_document("ready", "probe")
    except RecollectError:
        return "away", True
    return "ready", store.degraded
