"""Documents of applications: state of other programs, next to the log."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from aforesaid.contracts import Document
from aforesaid.contracts.documents import LARGEST_DOCUMENT
from aforesaid.protocol.bodies import ConversationId, RequestModel, ResponseModel, Uuid
from aforesaid.server.endpoints import Call, NoBody, Reply, Routes
from aforesaid.server.responses import json_response

routes = Routes("documents")

# Bytes of a request body: a document in base64.
LARGEST_BODY = LARGEST_DOCUMENT // 3 * 4 + 4096


class DocumentQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conversation that the document belongs to; without it, the owner."""

    conversation_id: ConversationId | None = None
    expected_version: Annotated[int, Meta(ge=0)] | None = None


class DocumentsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of documents."""

    conversation_id: ConversationId | None = None
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class NewDocument(RequestModel, frozen=True, kw_only=True):
    """The data of a document, in base64."""

    data: bytes


class DocumentBody(ResponseModel, frozen=True, kw_only=True):
    """A document. `data` is base64."""

    kind: str
    key: str
    data: bytes
    version: int
    updated_at: datetime
    conversation_id: Uuid | None = None


class FoundBody(ResponseModel, frozen=True, kw_only=True):
    """The document, or null."""

    document: DocumentBody | None


class DocumentsBody(ResponseModel, frozen=True, kw_only=True):
    """Documents, sorted by key."""

    documents: list[DocumentBody]


class RemovedBody(ResponseModel, frozen=True, kw_only=True):
    """Whether there was such a document."""

    removed: bool


@routes.put("/documents/{kind}/{key}", response=DocumentBody, body_limit=LARGEST_BODY, errors=(404, 409))
async def put_document(call: Call[NewDocument, DocumentQuery]) -> Reply:
    """Store an application's document, replacing an earlier one.

    With `expected_version` only that version is replaced; 0 means that there must be none. Kinds that start
    with `state/` stay when a message is redacted; others are removed then.
    """
    stored = await call.manager.put_document(
        call.path["kind"],
        call.path["key"],
        call.body.data,
        conversation_id=call.query.conversation_id,
        expected_version=call.query.expected_version,
    )
    return json_response(_body(stored))


@routes.get("/documents/{kind}/{key}", response=FoundBody)
async def get_document(call: Call[NoBody, DocumentQuery]) -> Reply:
    """Return an application's document, or null where there is none."""
    found = await call.manager.get_document(
        call.path["kind"], call.path["key"], conversation_id=call.query.conversation_id
    )
    return json_response({"document": None if found is None else _body(found)})


@routes.get("/documents/{kind}", response=DocumentsBody)
async def list_documents(call: Call[NoBody, DocumentsQuery]) -> Reply:
    """List an application's documents of a kind, sorted by key."""
    query = call.query
    found = await call.manager.list_documents(
        call.path["kind"], conversation_id=query.conversation_id, after=query.after, limit=query.limit
    )
    return json_response({"documents": [_body(document) for document in found]})


@routes.delete("/documents/{kind}/{key}", response=RemovedBody, status=200, errors=(409,))
async def delete_document(call: Call[NoBody, DocumentQuery]) -> Reply:
    """Remove an application's document."""
    removed = await call.manager.delete_document(
        call.path["kind"],
        call.path["key"],
        conversation_id=call.query.conversation_id,
        expected_version=call.query.expected_version,
    )
    return json_response({"removed": removed})


def _body(document: Document) -> DocumentBody:
    return DocumentBody(
        kind=document.kind,
        key=document.key,
        data=document.data,
        version=document.version,
        updated_at=document.updated_at,
        conversation_id=document.conversation_id,
    )
