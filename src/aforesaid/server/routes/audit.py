"""The audit trail of an owner, and its verification."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from aforesaid.audit.chain import Checked, Line
from aforesaid.audit.trail import AuditTrail
from aforesaid.errors import NotFound
from aforesaid.layers.audited import AuditedBackend
from aforesaid.protocol.bodies import ResponseModel
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response
from aforesaid.server.service import Service

routes = Routes("audit")


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of events, and their action."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    action: Annotated[str, Meta(max_length=100)] | None = None
    """Only events with this action, for example `erase`."""


class EventBody(ResponseModel, frozen=True, kw_only=True):
    """An action on the owner's data."""

    n: int
    """The number of the line in the trail."""
    at: datetime
    actor: str
    source: str
    action: str
    conversation: str
    outcome: str
    count: int
    error: str


class EventsBody(ResponseModel, frozen=True, kw_only=True):
    """Events, newest first."""

    events: list[EventBody]


@routes.get("/audit", response=EventsBody, scope="admin", errors=(404,))
async def list_events(call: Call[NoBody, EventsQuery]) -> Reply:
    """List who did what with the owner's data, newest first. Answers 404 without an audit trail."""
    lines = await _trail(call.service).latest(call.manager.owner, call.query.limit, action=call.query.action)
    return json_response({"events": [_body(line) for line in lines]})


@routes.get("/audit/verification", response=Checked, scope="admin", needs_owner=False, errors=(404,))
async def verify_trail(call: Call[NoBody, NoQuery]) -> Reply:
    """Verify that no line of the audit trail was changed, removed or added. Reads the whole trail."""
    return json_response(await _trail(call.service).check())


def _trail(service: Service) -> AuditTrail:
    layer = service.memory.layer(AuditedBackend)
    if layer is None:
        raise NotFound("this server keeps no audit trail")
    return layer.trail


def _body(line: Line) -> EventBody:
    return EventBody(**{name: getattr(line, name) for name in EventBody.__struct_fields__})
