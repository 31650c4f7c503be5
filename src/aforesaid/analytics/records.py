"""What analytics stores: events of a conversation, its state, and the cells of a day. None contains words."""

import hashlib
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from aforesaid.analytics.measures import Cell, total
from aforesaid.contracts.documents import STATE
from aforesaid.errors import StoreDamaged
from aforesaid.model.clock import from_micros
from aforesaid.model.conversations import Conversation

EventKind = Literal["assigned", "status", "merged"]
"""`opened` is the record's creation; `closed` and `reopened` follow from the statuses."""

# The statuses of a conversation that is closed.
CLOSED = ("resolved", "closed")

# Kinds that stay when the words of a message change: they contain none. All of a conversation's go with it.
EVENTS = f"{STATE}analytics/events"
PROGRESS = f"{STATE}analytics/progress"
# The owner's documents.
CHANGED = "analytics/changed"
"""A key for every conversation with an event that no roll-up contains yet."""
ROWS = "analytics/rows"
"""What each conversation contributes to a day; the key is the day and a part of the conversation's digest."""
UNTIL = "analytics/until"
"""The time up to which the roll-ups contain everything."""
ROLL_UPS = "analytics/roll-ups/"
"""The prefix of the kinds of roll-ups; a dimension follows. The key is the month and the value's digest."""
TOPICS = "analytics/topics"
"""Topics that the owner named; the key is the name's digest."""

KEY = "all"


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a conversation and that its log does not contain."""

    kind: EventKind
    at: int
    """Microseconds since 1970."""
    value: str | None = None
    """The status, or the assignee."""
    by: str | None = None
    """The participant whose handle was used."""


class Progress(Struct, kw_only=True, omit_defaults=True):
    """How far a conversation is counted, and what the next messages and events need to know."""

    messages: int = 0
    """How many entries are counted; another number in the record means that the log changed before them."""
    events: int = 0
    micros: int = 0
    sequence: int = 0
    """The place of the last counted entry."""
    revision: int = -1
    opened: int = 0
    first: int | None = None
    last: int | None = None
    """The times of the first and the last message."""
    waiting_since: int | None = None
    """The user's first message without an answer."""
    asked: int | None = None
    """The user's first message since opening or reopening."""
    needs_answer: bool = True
    needs_person: bool = True
    turns: int = 0
    tokens: int = 0
    closed: bool = False
    first_closed: int | None = None
    last_closed: int | None = None
    assignee: str | None = None
    assigned: int | None = None
    """The last assignment before a person's first answer."""
    automated: bool = False
    by_person: bool = False
    agent: str | None = None
    """The agent of the last answer."""
    calls: dict[str, tuple[int, str]] = {}
    """Tool calls without a result: time and tool."""
    days: list[str] = []
    """The days to which the conversation contributes."""
    cells: dict[str, Cell] = {}
    """The contributions of the first and the last day, without what concerns the whole conversation."""


class Labels(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """By what a conversation can be grouped."""

    channel: str | None = None
    client: str | None = None
    agent: str | None = None


def labels_of(record: Conversation, agent: str | None) -> Labels:
    """Return by what a conversation is grouped; `agent` gave its last answer."""
    return Labels(channel=record.channel, client=record.client_id, agent=record.assigned_to or agent)


class Row(Struct, kw_only=True):
    """What one conversation contributes to one day."""

    labels: Labels
    cell: Cell


class RollUp(Struct, kw_only=True):
    """The cells of one month for one value of a dimension, by day, and their sum.

    The days are decoded on demand: a report over whole months needs the sums alone, and by agent or client it
    reads a document for each value and month.
    """

    value: str | None
    total: Cell | None = None
    """The sum of the days; None in documents from before it was stored."""
    days: msgspec.Raw
    month: str = ""
    """The month of the key, as YYYY-MM."""

    @property
    def by_day(self) -> "dict[str, Cell]":
        """The cells by day."""
        return decode(bytes(self.days), dict[str, Cell])

    def between(self, first: str, last: str) -> "Cell":
        """Return the sum of the days of a period."""
        is_whole = bool(self.month) and first <= f"{self.month}-01" and f"{self.month}-31" <= last
        if is_whole and self.total is not None:
            return self.total
        return total(cell for day, cell in self.by_day.items() if first <= day <= last)


Rows = dict[str, Row]

T = TypeVar("T")
encode = msgspec.json.Encoder().encode
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(data: bytes, kind: type[T]) -> T:
    """Return the value of a stored form. Raise `StoreDamaged`."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"stored analytics are damaged: {error}") from error


def digest_of(*names: str | None) -> str:
    """Return a short key for names that must not be readable in a key."""
    joined = "\0".join("" if name is None else f"={name}" for name in names)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def day_of(micros: int) -> str:
    """Return the day in UTC, as YYYY-MM-DD."""
    return from_micros(micros).date().isoformat()


def day_of_moment(moment: datetime) -> str:
    """Return the day of a time with a UTC offset, in UTC."""
    return moment.astimezone(UTC).date().isoformat()
