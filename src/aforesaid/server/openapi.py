"""Generate the OpenAPI document from the endpoints and their body types.

The server decodes with the same types, so the document and the server cannot disagree.
"""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from aforesaid.protocol import PROBLEM_JSON
from aforesaid.protocol.bodies import HealthBody, MessageBody, ProblemBody, ReadyBody
from aforesaid.server.endpoints import Endpoint, Media, NoBody

Document = dict[str, Any]


def _version() -> str:
    try:
        return version("aforesaid")
    except PackageNotFoundError:
        return "0"


VERSION = _version()

JSON = "application/json"
REF = "#/components/schemas/{name}"

TAGS = {
    "conversations": "A conversation is a log of messages plus a record.",
    "branches": "Conversations that continue others, and links.",
    "messages": "Messages and turns.",
    "open turns": "Words of a user that have no answer yet.",
    "participants": "The people and agents of a conversation, read markers, and assignment.",
    "context": "Contexts for models.",
    "summaries": "Summaries of messages outside the window.",
    "sessions": "Sessions and the assistant.",
    "search": "Search over messages and conversations.",
    "webhooks": "Where notifications are sent.",
    "analytics": "Numbers about conversations, without words.",
    "clients": "Contacts that conversations are linked to.",
    "notes": "Facts and preferences that outlive a conversation.",
    "documents": "Documents of applications, next to the log.",
    "retention": "Retention, archives, erasure, export and import.",
    "changes": "Changes as server-sent events.",
    "overview": "Counts and owners.",
    "access": "The rights of the key, API keys, and the health of the server.",
    "audit": "Who did what with the data, and the proof.",
    "server": "Health, readiness and metrics.",
}

DESCRIPTION = """Conversation memory for assistants over HTTP.

Requests need a key: `Authorization: Bearer <API key or JSON Web Token>`. Health and readiness do not. With a
key for several owners, `Aforesaid-Owner` names the owner of the request, percent-encoded. Errors are RFC 9457
problems. Times are ISO 8601; durations are seconds. While the store is unavailable, a response from the last
known state has the header `Aforesaid-Degraded: true` and `"degraded": true` in its body; requests for other
data get 503."""

STATUS_DESCRIPTIONS: dict[int, str] = {
    304: "Not modified.",
    400: "The request cannot be parsed.",
    401: "A valid key is required.",
    403: "The key does not grant access.",
    404: "Not found, expired, or owned by another owner.",
    409: "Conflict with another write. Nothing was stored.",
    412: "The revision has changed. Nothing was stored.",
    413: "The body is too large.",
    415: "The content type is not supported.",
    422: "A value is invalid. The problem names its field.",
    429: "Too many requests. Retry after the time in `Retry-After`.",
    500: "Internal error.",
    501: "An optional package is not installed on the server.",
    502: "A model provider or transcriber failed.",
    503: "The store is unavailable or the server is stopping. Retry later.",
}


def openapi_document(endpoints: Sequence[Endpoint]) -> Document:
    """Return the document of these endpoints plus health, readiness and metrics."""
    types = _types(endpoints)
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    _add_time_formats(types, components)
    refs = _Schemas(dict(zip(map(_key, types), schemas, strict=True)))
    paths: Document = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.full_path, {})[endpoint.method.lower()] = _operation(endpoint, refs)
    used = {endpoint.tag for endpoint in endpoints} | {"server"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Aforesaid",
            "version": VERSION,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # Relative to the address of the document, so that it also holds under a path behind a proxy.
        "servers": [{"url": "../"}],
        "security": [{"key": []}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items() if name in used],
        "paths": paths | _server_paths(refs),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`aforesaid keys create`) or a JSON Web Token.",
                }
            },
        },
    }


def _add_time_formats(types: Sequence[Any], components: Document) -> None:
    """Say `date-time` where a field is a time: msgspec says it only for times with a required time zone."""
    seen: set[type] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(kind) for kind in types]
    while waiting:
        info = waiting.pop()
        waiting += [
            getattr(info, part) for part in ("item_type", "value_type", "key_type") if hasattr(info, part)
        ]
        waiting += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
        if not isinstance(info, msgspec.inspect.StructType) or info.cls in seen:
            continue
        seen.add(info.cls)
        properties = components.get(info.cls.__name__, {}).get("properties", {})
        for field in info.fields:
            waiting.append(field.type)
            if _is_time(field.type) and field.encode_name in properties:
                _set_time_format(properties[field.encode_name])


def _is_time(info: Any) -> bool:
    kinds = getattr(info, "types", (info,))
    return any(isinstance(kind, msgspec.inspect.DateTimeType) for kind in kinds)


def _set_time_format(schema: Document) -> None:
    for part in (schema, *schema.get("anyOf", ())):
        if part.get("type") == "string":
            part["format"] = "date-time"


class _Schemas:
    """The schema of each type, as a reference if the type has a name."""

    def __init__(self, known: Document) -> None:
        self._known = known

    def of(self, kind: Any) -> Document:
        schema: Document = self._known[_key(kind)]
        return schema


def _key(kind: Any) -> str:
    return repr(kind)


def _types(endpoints: Iterable[Endpoint]) -> list[Any]:
    found: dict[str, Any] = {_key(each): each for each in (MessageBody, ProblemBody, HealthBody, ReadyBody)}
    for endpoint in endpoints:
        bodies = () if endpoint.body is NoBody else (endpoint.body,)
        for kind in (*bodies, *_members(endpoint.response)):
            found.setdefault(_key(kind), kind)
        for field in msgspec.structs.fields(endpoint.query):
            found.setdefault(_key(field.type), field.type)
    return list(found.values())


def _members(answer: Any) -> tuple[Any, ...]:
    if answer is None or isinstance(answer, Media):
        return ()
    return get_args(answer) if get_origin(answer) in (Union, UnionType) else (answer,)


# One operation


def _operation(endpoint: Endpoint, schemas: _Schemas) -> Document:
    operation: Document = {
        "operationId": endpoint.name,
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "description": _description(endpoint),
        "parameters": [
            *_path_parameters(endpoint),
            *_query_parameters(endpoint, schemas),
            *_headers(endpoint),
        ],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.takes_body:
        operation["requestBody"] = _request_body(endpoint, schemas)
    return operation


def _description(endpoint: Endpoint) -> str:
    needs = f"Requires a key with the scope `{endpoint.scope}`."
    return f"{endpoint.description} {needs}".strip()


def _path_parameters(endpoint: Endpoint) -> list[Document]:
    schema = {"type": "string", "format": "uuid"}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in endpoint.parameters]


def _query_parameters(endpoint: Endpoint, schemas: _Schemas) -> list[Document]:
    found = []
    for field in msgspec.structs.fields(endpoint.query):
        schema = _without_null(schemas.of(field.type))
        if not field.required and field.default not in (msgspec.NODEFAULT, None):
            schema = {**schema, "default": field.default}
        found.append({"name": field.name, "in": "query", "required": field.required, "schema": schema})
    return found


def _without_null(schema: Document) -> Document:
    """Remove null, which a query parameter cannot express."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    if not options:
        return _enum_without_null(schema)
    return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}


def _enum_without_null(schema: Document) -> Document:
    if None not in schema.get("enum", ()):
        return schema
    return {**schema, "enum": [each for each in schema["enum"] if each is not None]}


def _headers(endpoint: Endpoint) -> list[Document]:
    found = []
    if endpoint.needs_owner:
        found.append(_header("Aforesaid-Owner", "The owner, percent-encoded UTF-8."))
    if endpoint.revised and endpoint.method != "GET" and "{" in endpoint.path:
        found.append(_header("If-Match", "The ETag of an earlier response. The revision must be unchanged."))
    if endpoint.revised and endpoint.method == "GET":
        found.append(
            _header("If-None-Match", "The ETag of an earlier response. Answers 304 if it is current.")
        )
    if endpoint.idempotent:
        found.append(_header("Idempotency-Key", "A key that identifies repeats of the request.", longest=255))
    return found


def _header(name: str, description: str, longest: int | None = None) -> Document:
    schema: Document = {"type": "string"} | ({"minLength": 1, "maxLength": longest} if longest else {})
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _request_body(endpoint: Endpoint, schemas: _Schemas) -> Document:
    if endpoint.body_media is not None:
        binary = {"schema": {"type": "string", "format": "binary"}}
        content: Document = dict.fromkeys(endpoint.body_media.types, binary)
        return {"required": True, "description": endpoint.body_media.description, "content": content}
    media: Document = {"schema": schemas.of(endpoint.body)}
    if endpoint.name in EXAMPLES:
        media["example"] = EXAMPLES[endpoint.name]
    return {"required": not endpoint.body_optional, "content": {JSON: media}}


def _responses(endpoint: Endpoint, schemas: _Schemas) -> Document:
    found: Document = {str(endpoint.status): _success(endpoint, schemas)}
    if endpoint.revised and endpoint.method == "GET" and "{" in endpoint.path:
        found["304"] = {"description": STATUS_DESCRIPTIONS[304]}
    problem: Document = {PROBLEM_JSON: {"schema": schemas.of(ProblemBody)}}
    for status in sorted(statuses_of(endpoint)):
        # The HTTP parser refuses malformed requests in plain text before routing.
        plain = {"text/plain": {"schema": {"type": "string"}}} if status == 400 else {}
        found[str(status)] = {"description": STATUS_DESCRIPTIONS[status], "content": problem | plain}
        if status in (429, 503):
            found[str(status)]["headers"] = {
                "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}
            }
    return found


def statuses_of(endpoint: Endpoint) -> set[int]:
    """Return the error statuses of an endpoint."""
    found = {400, 401, 403, 422, 429, 500, 503, *endpoint.errors}
    if endpoint.takes_body:
        found |= {413, 415}
    if "{" in endpoint.path:
        found |= {404, 409}
    if endpoint.revised and endpoint.method != "GET":
        found |= {409, 412}
    if endpoint.method != "GET":
        found.add(409)
    return found


def _success(endpoint: Endpoint, schemas: _Schemas) -> Document:
    description = HTTPStatus(endpoint.status).phrase
    headers: Document = {}
    if endpoint.revised and endpoint.status != 204:
        headers["ETag"] = {"description": "The revision.", "schema": {"type": "string"}}
    if endpoint.response is not None:
        headers["Aforesaid-Degraded"] = {
            "description": "`true` if the response was read from the last known state.",
            "schema": {"type": "string"},
        }
    if endpoint.response is None:
        return {"description": description}
    if isinstance(endpoint.response, Media):
        media = endpoint.response
        return {
            "description": media.description,
            "content": {media.type: {"schema": {"type": "string", "format": "binary"}}},
        }
    kinds = [schemas.of(kind) for kind in _members(endpoint.response)]
    schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    good: Document = {"description": description, "content": {JSON: {"schema": schema}}}
    return good | ({"headers": headers} if headers else {})


def _server_paths(schemas: _Schemas) -> Document:
    def operation(name: str, summary: str, kind: Any, statuses: dict[int, str]) -> Document:
        content = {JSON: {"schema": schemas.of(kind)}}
        return {
            "get": {
                "operationId": name,
                "tags": ["server"],
                "summary": summary,
                "security": [],
                "responses": {
                    str(status): {"description": description, "content": content}
                    for status, description in statuses.items()
                },
            }
        }

    return {
        "/health": operation("health", "Return 200 while the process runs.", HealthBody, {200: "OK"}),
        "/ready": operation(
            "ready",
            "Return whether the server accepts requests and the store is available.",
            ReadyBody,
            {200: "Ready.", 503: "The store is unavailable or the server is stopping."},
        ),
        "/metrics": {"get": _metrics(schemas)},
    }


def _metrics(schemas: _Schemas) -> Document:
    text = {"schema": {"type": "string"}}
    refused = {"application/problem+json": {"schema": schemas.of(ProblemBody)}}
    forms = {"text/plain": text, "application/openmetrics-text": text}
    return {
        "operationId": "metrics",
        "tags": ["server"],
        "summary": "Return metrics. Requires a key for all owners.",
        "responses": {
            "200": {"description": "Metrics in the requested format.", "content": forms},
            "401": {"description": "A valid key is required.", "content": refused},
            "403": {"description": "The key is not for all owners.", "content": refused},
            "503": {
                "description": "The store is unavailable, so the key cannot be verified.",
                "content": refused,
            },
        },
    }


_TURN = [
    {"role": "user", "content": "find me a chicken dinner"},
    {"role": "assistant", "content": "How about lemon chicken?", "agent_name": "cook"},
]

# A valid body for each route that takes one.
EXAMPLES: dict[str, Any] = {
    "open_conversation": {"session_id": "kitchen", "channel": "voice"},
    "update_conversation": {"subject": "Dinner on Friday", "status": "pending", "tags": ["dinner"]},
    "link_client": {"client_id": "01952f3e-6c1e-7b0a-8f57-2f8a3c9d4e10", "client_name": "Ann Baker"},
    "fork_conversation": {"message_id": "01952f3e-7d2a-7c11-9a04-5b1f2c3d4e5f", "subject": "without chicken"},
    "merge_branch": {"branch_id": "01952f3e-7d2a-8c11-9a04-5b1f2c3d4e5f", "how": "append"},
    "set_topic": {"examples": ["The roof leaks.", "Water comes through the ceiling."]},
    "recompute_analytics": {"keep_removed": True},
    "add_message": {"role": "user", "content": "and for dessert?", "content_type": "audio"},
    "add_turn": {"messages": _TURN},
    "rewrite_history": {"messages": _TURN},
    "put_document": {"data": "eyJzdGVwIjogM30="},
    "add_session_turn": {"session_id": "kitchen", "messages": _TURN},
    "open_turn": {"messages": _TURN[:1]},
    "discard_open_turn": {"turn_id": "01952f3e-7d2a-7c11-9a04-5b1f2c3d4e5f"},
    "redact_message": {"message_id": "01952f3e-7d2a-7c11-9a04-5b1f2c3d4e5f"},
    "set_participant": {"name": "Ann Baker", "role": "member", "history": "from_now"},
    "mark_read_up_to": {"message_id": "01952f3e-7d2a-7c11-9a04-5b1f2c3d4e5f", "participant_id": "ann"},
    "set_notification_rule": {"rule": "mentions", "participant_id": "ann"},
    "set_webhook": {"url": "https://hooks.example.com/notifications"},
    "take_notifications": {"participant_id": "ann", "limit": 20},
    "assign_conversation": {"assignee": "sam", "expected": None},
    "load_context": {"policy": {"max_tokens": 4000}, "pending": _TURN[:1], "dialect": "anthropic"},
    "first_context": {"pending": _TURN[:1]},
    "summarize": {"policy": {"max_messages": 20}},
    "leave_session": {"session_id": "kitchen"},
    "find_clients": {"query": "Anne Baker"},
    "identify_client": {"text": "I spoke with Ann Baker about the roof"},
    "search_history": {"query": "which chicken did we like?", "max_results": 3},
    "search_conversations": {"query": "dinner", "status": "open"},
    "set_retention": {"owner": 7_776_000, "channels": {"voice": 604_800}, "tags": {"legal": None}},
    "ask": {"session_id": "kitchen", "text": "what did I want for dinner?"},
    "note_interruption": {"message_id": "01952f3e-7d2a-7c11-9a04-5b1f2c3d4e5f", "heard": 42},
    "remember": {"text": "I like leeks", "tags": ["food"]},
    "recall": {"query": "what vegetables do I like?"},
    "forget": {"what": "leeks"},
    "forget_everywhere": {"what": "leeks", "preview": True},
    "add_client": {"name": "Ann Baker", "nicknames": ["Annie"], "company": "Baker & Sons"},
    "create_key": {"owners": ["erin"], "scope": "write", "name": "kitchen tablet"},
    "update_client": {"email": "ann@example.org", "phone": None},
}
