"""Numbers of requests, searches and notes, as they are noted."""

from datetime import datetime
from typing import Literal, NamedTuple

TallyName = Literal["notes_made", "notes_used", "searches_with_answer", "quoted_searches"]


class ContextUse(NamedTuple):
    """The numbers of one request."""

    messages: int
    stable: int
    """Leading messages that stay unchanged until the next cut."""
    known: int
    """Messages in the conversation."""
    left_out: int
    tokens: int | None
    """None where tokens were not counted."""
    summary_tokens: int
    notes: int


class SearchUse(NamedTuple):
    """The numbers of one search."""

    hits: int


class Tally(NamedTuple):
    """Something that is only counted."""

    name: TallyName
    number: int = 1


class Noted(NamedTuple):
    """Numbers with their time and conversation; None for what belongs to no conversation."""

    conversation_id: str | None
    at: datetime
    use: ContextUse | SearchUse | Tally
