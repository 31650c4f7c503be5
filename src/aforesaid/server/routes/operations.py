"""Health, readiness and metrics.

Health and readiness need no key and reveal nothing about owners. Metrics need a key for all owners, because
they show the activity of all of them.
"""

from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from aforesaid.errors import AccessError, AforesaidError, NotAllowed
from aforesaid.protocol.bodies import HealthBody
from aforesaid.server.calls import Service, source_of
from aforesaid.server.guard import PUBLIC
from aforesaid.server.readiness import readiness
from aforesaid.server.responses import Response, json_response, problem_response
from aforesaid.telemetry.aggregation import SharedNumbers
from aforesaid.telemetry.exposition import exposition, form_for


def operations(service: Service, numbers: SharedNumbers) -> list[HTTPRouteHandler]:
    """Return the routes without the `/v1` prefix."""

    @get("/health", include_in_schema=False, opt=PUBLIC)
    async def health() -> ASGIApp:
        return json_response(HealthBody(status="ok"))

    @get("/ready", include_in_schema=False, opt=PUBLIC)
    async def ready() -> ASGIApp:
        found = await readiness(service.memory, draining=service.draining.is_set())
        return json_response(found, status=200 if found.status == "ready" else 503)

    @get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> ASGIApp:  # type: ignore[type-arg]
        headers = dict(request.scope["headers"])
        try:
            await _check_all_owners(service, headers)
        except AccessError as error:
            await service.note_refusal("GET /metrics", error, source=source_of(request))
            return problem_response(error)
        except AforesaidError as error:
            return problem_response(error)
        return await _metrics_response(numbers, headers.get(b"accept", b"").decode("latin-1"))

    return [health, ready, metrics]


async def _check_all_owners(service: Service, headers: Any) -> None:
    caller = await service.authenticator.authenticate(headers)
    if caller.owners is not None:
        raise NotAllowed("metrics need a key for all owners")


async def _metrics_response(numbers: SharedNumbers, accept: str) -> Response:
    form = form_for(accept)
    found = await numbers.numbers()
    text = exposition(found.series, form, found.families)
    return Response(text.encode(), media=form.encode())
