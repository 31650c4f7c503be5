"""Summaries of messages outside a window: storage form and text in a context.

A summary covers the oldest messages of a conversation. It is a document derived from the conversation, one
for each summarizer, so it is removed with the conversation and with any changed message. The next summary is
made from the last one and the messages since. It also covers some messages that the window still shows, so
that a window that moves by one message does not need a new summary each time.
"""

import re
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import Struct

from aforesaid.contracts import Document
from aforesaid.errors import StoreDamaged
from aforesaid.model.messages import Message

KIND = "summaries"
TAG = "summary"
"""The tag of the message that contains a summary in a context."""

AHEAD = 10
"""Messages inside the window that a summary also covers: five exchanges until the next one."""
CHUNK = 100
"""The most messages that one step summarizes."""
FARTHEST = 2_000
"""The most messages before the window that the first summary of a long conversation covers."""

Count = Callable[[str], int]


class Summary(Struct, frozen=True, kw_only=True):
    """A summary and the messages that it covers."""

    text: str
    by: str
    """The name of the summarizer."""
    messages: int
    """How many of the oldest messages it covers."""
    last_sequence: int
    """The sequence of the last covered message. The summary is invalid when another message is in
    its place.
    """
    made_at: datetime

    @property
    def rendered(self) -> str:
        """The text that a model reads."""
        return f"{heading(self)}\n{self.text}"


def heading(summary: Summary) -> str:
    return (
        f"Summary of the first {summary.messages:,} messages of this conversation (by {summary.by}). "
        "The oldest of them are not shown:"
    )


def encode_summary(summary: Summary) -> bytes:
    return msgspec.json.encode(summary)


def decode_summary(document: Document) -> Summary:
    """Return the summary in a document. Raise `StoreDamaged`."""
    try:
        return msgspec.json.decode(document.data, type=Summary)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a summary cannot be read: {error}") from error


def shortened(summary: Summary, *, tokens: int, count: Count) -> str | None:
    """Return the summary's text within a budget, without its oldest part where it is too long; None where
    nothing fits.
    """
    parts = [part for part in _PARTS.split(summary.text) if part.strip()]
    head = heading(summary)
    while parts:
        text = f"{head}\n{''.join(parts).strip()}"
        if count(text) <= tokens:
            return text
        # The latest part of a summary is closest to the window.
        parts = parts[1:]
    return None


_PARTS = re.compile(r"(?<=\n)|(?<=[.!?]\s)")


def message_of(text: str) -> Message:
    return Message(role="system", content=text, tags=(TAG,))
