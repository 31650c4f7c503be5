"""Values of branches: the tree of a family, a comparison, the result of a merge."""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Message

How = Literal["append", "interleave", "summary", "adopt"]

# Fields of a record that `compare` and `merge` name.
COMPARED = (
    "subject",
    "status",
    "priority",
    "channel",
    "client_id",
    "client_name",
    "assigned_to",
    "tags",
    "notes",
)


# The tags of a message that a merge has brought: this one, and one with the branch that it was said in.
MERGED, FROM = "merged", "from:"


def is_merged(message: Message) -> bool:
    """Return whether a merge has brought the message from a branch, which has it too."""
    return MERGED in message.tags and any(tag.startswith(FROM) for tag in message.tags)


class Branch(Struct, frozen=True, kw_only=True):
    """A conversation in the tree of a family."""

    conversation_id: str
    parent_id: str | None
    """The conversation that it continues; None for the root."""
    subject: str | None
    own_messages: int
    shared_messages: int
    """The number of messages that its ancestors store."""
    created_at: datetime
    last_activity: datetime


class Comparison(Struct, frozen=True, kw_only=True):
    """What two conversations of a family share, and what each has alone."""

    ancestor_id: str | None
    """The nearest conversation whose messages both show; None where they share none."""
    shared: int
    """The number of messages that both show."""
    only_here: tuple[Message, ...]
    only_there: tuple[Message, ...]
    differences: dict[str, tuple[Any, Any]]
    """Fields of the records that differ: the value here, and the value there."""


class Merged(Struct, frozen=True, kw_only=True):
    """The result of a merge."""

    conversation: Conversation
    added: int
    """The number of messages that were stored."""
    known: int
    """The number of messages that the conversation had already."""
    left_out: int
    """The number of messages that cannot be read or whose words were removed."""
    differences: dict[str, tuple[Any, Any]]
    """Fields of the records that still differ: the value here, and the value in the branch."""
