"""The rights of a key, what the server offers, and the management of API keys."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from aforesaid.contracts import Auditing, capability
from aforesaid.errors import NotAllowed
from aforesaid.protocol.bodies import Name, RequestModel, ResponseModel, Seconds
from aforesaid.protocol.documents import seconds
from aforesaid.server.auth.keys import AccessScope, ApiKey
from aforesaid.server.endpoints import Call, NoBody, NoQuery, Reply, Routes
from aforesaid.server.health_series import HealthSeries
from aforesaid.server.openapi import VERSION
from aforesaid.server.responses import json_response

routes = Routes("access")


class AccessBody(ResponseModel, frozen=True, kw_only=True):
    """The rights of the key, and what the server offers."""

    name: str
    """The caller's name in the audit trail."""
    scope: AccessScope
    owners: list[str] | None
    """The owners that the key may access; null means all."""
    owner: str | None
    """The owner of requests that name none."""
    participant: str | None
    """The participant to whose conversations the key is limited; null for a key of the owner."""
    without_key: bool
    """Whether the server accepts local requests without a key."""
    version: str
    voice: bool
    """Whether the server transcribes audio."""
    audit: bool
    """Whether the server keeps an audit trail."""
    archives: bool
    """Whether conversations can be archived."""


class KeyBody(ResponseModel, frozen=True, kw_only=True):
    """An API key without its secret."""

    id: str
    name: str
    owners: list[str]
    scope: AccessScope
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    participant: str | None


class KeysBody(ResponseModel, frozen=True, kw_only=True):
    """The API keys, oldest first."""

    keys: list[KeyBody]


class NewKey(RequestModel, frozen=True, kw_only=True):
    """The rights of a new key. `*` stands for all owners."""

    owners: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    scope: AccessScope = "write"
    name: Annotated[str, Meta(max_length=200)] = ""
    expires_in: Seconds | None = None
    participant: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """Limits the key to the conversations in which this participant takes part."""


class CreatedKey(ResponseModel, frozen=True, kw_only=True):
    """The new key. `text` is the key itself; it is not stored and cannot be shown again."""

    text: str
    key: KeyBody


@routes.get("/access", response=AccessBody, needs_owner=False)
async def get_access(call: Call[NoBody, NoQuery]) -> Reply:
    """Return what the key permits and what the server offers."""
    caller, service = call.caller, call.service
    return json_response(
        AccessBody(
            name=caller.name,
            scope=caller.scope,
            owners=None if caller.owners is None else sorted(caller.owners),
            owner=caller.owner,
            participant=caller.participant,
            without_key=b"authorization" not in call.headers,
            version=VERSION,
            voice=service.has_voice,
            audit=capability(service.memory.backend, Auditing) is not None,
            archives=service.memory.archives is not None,
        )
    )


@routes.get("/health/series", response=HealthSeries, needs_owner=False)
async def get_health_series(call: Call[NoBody, NoQuery]) -> Reply:
    """Return samples of the last hour, for charts, and the alerts that would fire. Requires a key for all
    owners.
    """
    _check_all_owners(call)
    return json_response(call.service.history.series())


@routes.get("/keys", response=KeysBody, scope="admin", needs_owner=False)
async def list_keys(call: Call[NoBody, NoQuery]) -> Reply:
    """List the API keys, without secrets. Requires a key for all owners."""
    _check_all_owners(call)
    found = await call.service.authenticator.keys.list()
    return json_response({"keys": [_key_body(key) for key in found]})


@routes.post("/keys", response=CreatedKey, status=201, scope="admin", needs_owner=False)
async def create_key(call: Call[NewKey, NoQuery]) -> Reply:
    """Create an API key. Only this response has its text. Requires a key for all owners.

    After the first key, the server refuses requests without one.
    """
    _check_all_owners(call)
    body = call.body
    text, key = await call.service.authenticator.keys.create(
        body.owners,
        scope=body.scope,
        name=body.name,
        expires_in=seconds(body.expires_in, field="expires_in"),
        participant=body.participant,
    )
    return json_response(CreatedKey(text=text, key=_key_body(key)), status=201)


@routes.post("/keys/{key_id}/revoke", response=KeyBody, scope="admin", needs_owner=False, errors=(404,))
async def revoke_key(call: Call[NoBody, NoQuery]) -> Reply:
    """Revoke an API key. Every server refuses it within seconds. Requires a key for all owners."""
    _check_all_owners(call)
    return json_response(_key_body(await call.service.authenticator.keys.revoke(call.path["key_id"])))


def _check_all_owners(call: Call[NewKey, NoQuery] | Call[NoBody, NoQuery]) -> None:
    if call.caller.owners is not None:
        raise NotAllowed("this needs a key for all owners")


def _key_body(key: ApiKey) -> KeyBody:
    return KeyBody(
        id=key.id,
        name=key.name,
        owners=list(key.owners),
        scope=key.scope,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        participant=key.participant,
    )
