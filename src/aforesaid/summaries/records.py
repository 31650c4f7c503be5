"""Summaries of what fell out of a window: as they are kept, and as they stand in a context. The rules.

A summary stands for the oldest messages of a conversation. It is a document that is derived from the
conversation, one for each summarizer, so it goes with it, and with any message that is changed. It grows: the
next one is made of the last and of the messages since. It covers some messages that the window still shows,
so that a window which moves on by a message does not need another summary each time.

Below: contracts. Above: the manager.
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
"""The tag of the message that holds a summary in a context."""

AHEAD = 10
"""Messages of the window that a summary covers besides: five exchanges until the next is needed."""
CHUNK = 100
"""Messages that go into a summary in one step."""
FARTHEST = 2_000
"""Messages before the window that the first summary of a long conversation begins with, at most."""

Count = Callable[[str], int]


class Summary(Struct, frozen=True, kw_only=True):
    """What a summary says, and what it stands for."""

    text: str
    by: str
    """The name of the summarizer."""
    messages: int
    """It covers so many of the oldest messages."""
    last_sequence: int
    """The sequence of the last of them: where another stands in its place, the summary is void."""
    made_at: datetime

    @property
    def describe(self) -> str:
        """What a model reads."""
        return f"{heading(self)}\n{self.text}"


def heading(summary: Summary) -> str:
    return (
        f"Summary of the first {summary.messages:,} messages of this conversation (by {summary.by}). "
        "The older of them are not shown:"
    )


def encode_summary(summary: Summary) -> bytes:
    return msgspec.json.encode(summary)


def decode_summary(document: Document) -> Summary:
    """The summary in a document. Raises `StoreDamaged`."""
    try:
        return msgspec.json.decode(document.data, type=Summary)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a summary cannot be read: {error}") from error


def shortened(summary: Summary, *, tokens: int, count: Count) -> str | None:
    """The summary within a budget: of what is too long the beginning goes, the oldest. None: nothing fits."""
    parts = [part for part in _PARTS.split(summary.text) if part.strip()]
    head = heading(summary)
    while parts:
        text = f"{head}\n{''.join(parts).strip()}"
        if count(text) <= tokens:
            return text
        parts = parts[1:]
    return None


_PARTS = re.compile(r"(?<=\n)|(?<=[.!?]\s)")


def message_of(text: str) -> Message:
    return Message(role="system", content=text, tags=(TAG,))
