"""Calls for an application's documents. The signatures are the manager's."""

import base64
from typing import Any

import msgspec

from aforesaid.contracts import Document
from aforesaid.contracts.documents import check_data, check_expected, parse_place
from aforesaid.memory.documents import MOST_LISTED, application_kind
from aforesaid.model.conversations import check_count
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import Calls, conversation


class DocumentCalls(Calls):
    """Calls for an application's documents."""

    def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Call[Document]:
        """Not retried with an expected version: the first attempt may have changed it."""
        _check(kind, key)
        version = check_expected(expected_version, least=0)
        return self._call(
            "PUT",
            "documents",
            kind,
            key,
            query=_query(conversation_id, expected_version=version),
            body={"data": base64.b64encode(check_data(data)).decode()},
            read=_document,
            repeatable=version is None,
        )

    def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Call[Document | None]:
        _check(kind, key)
        return self._call(
            "GET",
            "documents",
            kind,
            key,
            query=_query(conversation_id),
            read=_optional_document,
        )

    def list_documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> Call[list[Document]]:
        application_kind(kind)
        check_count(limit, field="limit", least=0)
        query = _query(conversation_id, after=after, limit=max(min(limit, MOST_LISTED), 1))
        return self._call(
            "GET",
            "documents",
            kind,
            query=query,
            read=lambda document: [_document(one) for one in document["documents"]][:limit],
        )

    def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Call[bool]:
        """Not retried: a second attempt would find nothing."""
        _check(kind, key)
        version = check_expected(expected_version, least=1)
        return self._call(
            "DELETE",
            "documents",
            kind,
            key,
            query=_query(conversation_id, expected_version=version),
            read=lambda document: bool(document["removed"]),
            repeatable=False,
        )


def _check(kind: str, key: str) -> None:
    parse_place(application_kind(kind), key)


def _query(conversation_id: str | None, **more: Any) -> dict[str, Any]:
    holder = None if conversation_id is None else conversation(conversation_id)
    return {"conversation_id": holder, **more}


def _document(body: Any) -> Document:
    return msgspec.convert(body, Document)


def _optional_document(body: Any) -> Document | None:
    return None if body["document"] is None else _document(body["document"])
