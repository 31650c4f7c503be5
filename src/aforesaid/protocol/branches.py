"""Bodies of branches, and their conversion: the tree, a comparison, a merge."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, convert

from aforesaid.model.branches import Branch, Comparison, How, Merged
from aforesaid.model.messages import Message
from aforesaid.protocol.bodies import ConversationBody, ConversationId, Count, MessageBody, Name, RequestModel
from aforesaid.protocol.bodies import ResponseModel as _Response
from aforesaid.protocol.documents import Document, conversation_document, conversation_of

Field = Literal[
    "subject", "status", "priority", "channel", "client_id", "client_name", "assigned_to", "tags", "notes"
]


class ForkBody(RequestModel, frozen=True, kw_only=True):
    """Where a branch begins. A repeated `request_id` returns the first branch."""

    message_id: Annotated[
        Name | None,
        Meta(description="The id of a message: an answer is shared, a question is not. Default: the end."),
    ] = None
    subject: str | None = None
    request_id: Name | None = None


class BranchBody(_Response, frozen=True, kw_only=True):
    """A conversation in the tree of a family."""

    conversation_id: str
    parent_id: str | None
    subject: str | None
    own_messages: int
    shared_messages: int
    created_at: datetime
    last_activity: datetime


class BranchesBody(_Response, frozen=True, kw_only=True):
    """The tree: the root first, then by creation."""

    branches: list[BranchBody]


class DifferenceBody(_Response, frozen=True, kw_only=True):
    """A field of two records that differ."""

    field: str
    here: Any
    there: Any


class ComparisonBody(_Response, frozen=True, kw_only=True):
    """What two conversations share, and what each has alone."""

    ancestor_id: str | None
    shared: int
    only_here: list[MessageBody]
    only_there: list[MessageBody]
    differences: list[DifferenceBody]


class MergeBody(RequestModel, frozen=True, kw_only=True):
    """The branch to bring, and how. `fields` are those of the record to take from the branch."""

    branch_id: ConversationId
    how: How = "append"
    fields: list[Field] = []
    summary: str | None = None
    expected_revision: Count | None = None


class MergedBody(_Response, frozen=True, kw_only=True):
    """The record after the merge, and how many messages were stored, were here already, or were left out."""

    conversation: ConversationBody
    added: int
    known: int
    left_out: int
    differences: list[DifferenceBody]


class LinksBody(_Response, frozen=True, kw_only=True):
    """The records of the linked conversations, the latest first."""

    conversations: list[ConversationBody]


def branch_of(document: Mapping[str, Any]) -> Branch:
    return convert(dict(document), Branch)


def comparison_document(found: Comparison) -> Document:
    return {
        "ancestor_id": found.ancestor_id,
        "shared": found.shared,
        "only_here": [message.to_dict() for message in found.only_here],
        "only_there": [message.to_dict() for message in found.only_there],
        "differences": _differences_document(found.differences),
    }


def comparison_of(document: Mapping[str, Any]) -> Comparison:
    return Comparison(
        ancestor_id=document["ancestor_id"],
        shared=document["shared"],
        only_here=tuple(Message.from_dict(one) for one in document["only_here"]),
        only_there=tuple(Message.from_dict(one) for one in document["only_there"]),
        differences=_differences_of(document["differences"]),
    )


def merged_document(merged: Merged) -> Document:
    return {
        "conversation": conversation_document(merged.conversation),
        "added": merged.added,
        "known": merged.known,
        "left_out": merged.left_out,
        "differences": _differences_document(merged.differences),
    }


def merged_of(document: Mapping[str, Any]) -> Merged:
    return Merged(
        conversation=conversation_of(document["conversation"]),
        added=document["added"],
        known=document["known"],
        left_out=document["left_out"],
        differences=_differences_of(document["differences"]),
    )


def _differences_document(differences: Mapping[str, tuple[Any, Any]]) -> list[Document]:
    return [{"field": field, "here": here, "there": there} for field, (here, there) in differences.items()]


def _differences_of(documents: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return the differences. Lists are tuples in a record."""
    return {one["field"]: (_value(one["here"]), _value(one["there"])) for one in documents}


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
