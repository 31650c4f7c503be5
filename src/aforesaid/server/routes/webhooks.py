"""Webhooks: where the server sends notifications of participants."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from aforesaid.model.webhooks import LONGEST_URL
from aforesaid.protocol.bodies import RequestModel, ResponseModel
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("webhooks")


class WebhookChange(RequestModel, frozen=True, kw_only=True):
    """The address, which must be at a host that the server's setting `webhook_hosts` lists."""

    url: Annotated[str, Meta(min_length=1, max_length=LONGEST_URL)]
    secret: Annotated[str, Meta(max_length=100)] | None = None
    """`whsec_` and 24 to 64 bytes in base64. Default: a random one."""


class WebhookBody(ResponseModel, frozen=True, kw_only=True):
    """Where a participant's notifications are sent. Only the reply to its creation has the secret."""

    participant_id: str
    url: str
    secret: str
    created_at: datetime


class WebhooksBody(ResponseModel, frozen=True, kw_only=True):
    """The webhooks, sorted by participant."""

    webhooks: list[WebhookBody]


class DeletedBody(ResponseModel, frozen=True, kw_only=True):
    """Whether there was one."""

    deleted: bool


@routes.get("/webhooks", response=WebhooksBody, scope="admin")
async def list_webhooks(call: Call[NoBody, NoQuery]) -> Reply:
    """List the webhooks of the owner's participants, without secrets."""
    return json_response({"webhooks": [one.to_dict() for one in await call.manager.webhooks()]})


@routes.put("/webhooks/{participant_id}", response=WebhookBody, status=200, scope="admin")
async def set_webhook(call: Call[WebhookChange, NoQuery]) -> Reply:
    """Have the server send a participant's notifications to an address, signed with a secret."""
    call.service.webhook_hosts.check(call.body.url)
    participant_id = call.path["participant_id"]
    webhook = await call.manager.set_webhook(participant_id, call.body.url, secret=call.body.secret)
    return json_response(webhook.to_dict())


@routes.delete("/webhooks/{participant_id}", response=DeletedBody, status=200, scope="admin")
async def delete_webhook(call: Call[NoBody, NoQuery]) -> Reply:
    """Remove a participant's webhook. A missing one is not an error."""
    return json_response({"deleted": await call.manager.delete_webhook(call.path["participant_id"])})
