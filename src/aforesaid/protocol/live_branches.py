"""WebSocket frames for branches and links. Fields and meaning are those of the HTTP routes."""

from typing import Any

from aforesaid.errors import InvalidInput
from aforesaid.model.branches import How
from aforesaid.model.ids import parse_name
from aforesaid.protocol.branches import Field
from aforesaid.protocol.live_base import ClientFrame, Outgoing


class Fork(ClientFrame, frozen=True, kw_only=True, tag="fork"):
    """Create a branch."""

    id: str
    """Chosen by the client. A frame sent again with the same id returns the first branch."""
    message_id: str | None = None
    """An answer is shared with the branch, a question is not. Default: the end."""
    subject: str | None = None
    conversation_id: str | None = None
    """Default: the conversation of the session."""

    def __post_init__(self) -> None:
        parse_name(self.id, field="id")


class Branches(ClientFrame, frozen=True, kw_only=True, tag="branches"):
    """Ask for the tree that a conversation belongs to."""

    conversation_id: str | None = None


class Compare(ClientFrame, frozen=True, kw_only=True, tag="compare"):
    """Ask what only one of two conversations contains."""

    other_id: str
    conversation_id: str | None = None


class Merge(ClientFrame, frozen=True, kw_only=True, tag="merge"):
    """Bring what was said in a branch into the conversation. A repeated merge brings only what is new."""

    branch_id: str
    how: How = "append"
    fields: list[Field] = []
    summary: str | None = None
    expected_revision: int | None = None
    conversation_id: str | None = None
    id: str | None = None
    """Returned in an `error` frame."""

    def __post_init__(self) -> None:
        if self.expected_revision is not None and self.expected_revision < 0:
            raise InvalidInput("expected_revision must be 0 or more", field="expected_revision")


class Link(ClientFrame, frozen=True, kw_only=True, tag="link"):
    """Record that two conversations are related."""

    other_id: str
    conversation_id: str | None = None


class Unlink(ClientFrame, frozen=True, kw_only=True, tag="unlink"):
    """Remove a link."""

    other_id: str
    conversation_id: str | None = None


class Links(ClientFrame, frozen=True, kw_only=True, tag="links"):
    """Ask for the conversations that are linked to this one."""

    conversation_id: str | None = None


# Server frames


class Forked(Outgoing, frozen=True, kw_only=True, tag="forked"):
    """The reply to `fork`: the record of the branch. Watch it to get its messages."""

    id: str
    conversation: dict[str, Any]


class BranchTree(Outgoing, frozen=True, kw_only=True, tag="branches"):
    """The reply to `branches`: the root first, then by creation."""

    conversation_id: str
    branches: list[Any]


class Compared(Outgoing, frozen=True, kw_only=True, tag="comparison"):
    """The reply to `compare`."""

    conversation_id: str
    other_id: str
    comparison: dict[str, Any]


class Merged(Outgoing, frozen=True, kw_only=True, tag="merged"):
    """The reply to `merge`. Watchers get the merged messages in `messages`."""

    conversation_id: str
    branch_id: str
    merged: dict[str, Any]
    id: str | None = None


class Linked(Outgoing, frozen=True, kw_only=True, tag="links"):
    """The reply to `link`, `unlink` and `links`: the records of the linked conversations."""

    conversation_id: str
    conversations: list[Any]
