"""The question and the filters of a search, validated once."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Position
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.clock import parse_moment, to_micros
from aforesaid.model.conversations import Channel, Conversation, Query, Status, check_channel, check_count
from aforesaid.model.messages import ROLES, Message, Role, parse_tags, parse_text
from aforesaid.search.analysis import speaker_term, terms_of
from aforesaid.search.cues import cues_of
from aforesaid.search.dates import Period, find_periods
from aforesaid.search.ranking import AnalyzedQuestion

# Maximum number of different terms in a question.
MOST_TERMS = 64
# Characters of a question that are read.
LONGEST_QUESTION = 20_000


class Filters(Struct, frozen=True, kw_only=True):
    """Conditions on messages; all given filters apply."""

    role: Role | None = None
    date_from: datetime | None = None
    date_to: datetime | None = None
    """Inclusive: a message's time lies in [date_from, date_to]."""
    tag: str | None = None
    """The message or its conversation has this tag."""
    channel: Channel | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field) is not None for field in self.__struct_fields__)

    def matches_position(self, role: Role | None, position: Position) -> bool:
        """Check role and time without reading the message. An unknown role passes."""
        return (
            (role is None or self.role in (None, role))
            and (self.date_from is None or to_micros(self.date_from) <= position.micros)
            and (self.date_to is None or position.micros <= to_micros(self.date_to))
        )

    def is_before_range(self, position: Position) -> bool:
        """Return whether this position and everything before it is too early."""
        return self.date_from is not None and position.micros < to_micros(self.date_from)

    def restricted_to(self, period: Period, *, now: datetime, zone: tzinfo) -> "Filters":
        """Return these filters, narrowed to the days of the period."""
        first, last = period.days(now.astimezone(zone).date())
        start, end = datetime.combine(first, time.min, zone), datetime.combine(last, time.max, zone)
        return replace(
            self,
            date_from=start if self.date_from is None else max(self.date_from, start),
            date_to=end if self.date_to is None else min(self.date_to, end),
        )

    def matches_record(self, record: Conversation) -> bool:
        return self.channel in (None, record.channel)

    def matches_tags(self, record: Conversation, message: Message) -> bool:
        return self.tag is None or self.tag in record.tags or self.tag in message.tags


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A validated search of an owner's messages."""

    question: str = ""
    """Empty for the latest messages."""
    max_results: int = 5
    filters: Filters = Filters()
    max_tokens: int | None = None
    """Limit of all snippets together."""
    min_relevance: float | None = None
    """Drop results with less; None applies the default."""
    explain: bool = False
    """Return the parts of each score."""
    timezone: tzinfo | None = None
    """The zone of shown times; None is this machine's."""


def parse_query(
    query: object,
    max_results: object,
    *,
    role: Any = None,
    date_from: datetime | str | None = None,
    date_to: datetime | str | None = None,
    tag: Any = None,
    channel: Any = None,
    max_tokens: object = None,
    min_relevance: object = None,
    explain: bool = False,
    timezone: tzinfo | None = None,
) -> SearchQuery:
    """Return the validated search. Raise `InvalidInput` naming the invalid argument."""
    if role is not None and role not in ROLES:
        raise InvalidInput.not_in("role", role, ROLES)
    if channel is not None:
        check_channel(channel)
    filters = Filters(
        role=role,
        date_from=None if date_from is None else parse_moment(date_from, field="date_from"),
        date_to=None if date_to is None else parse_moment(date_to, field="date_to"),
        tag=None if tag is None else parse_text(tag, field="tag"),
        channel=channel,
    )
    return SearchQuery(
        question=parse_question(query),
        max_results=parse_limit(max_results, field="max_results"),
        filters=filters,
        max_tokens=None if max_tokens is None else parse_limit(max_tokens, field="max_tokens"),
        min_relevance=parse_relevance(min_relevance),
        explain=explain,
        timezone=timezone,
    )


def parse_relevance(value: object) -> float | None:
    """Return the least relevance of a result; None applies the default."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidInput(
            f"min_relevance must be a number from 0 to 1; got {shown(value)}",
            field="min_relevance",
            value=value,
        )
    return float(value)


def parse_conversation_filters(
    *,
    client_id: str | None,
    status: Status | None,
    tags: Sequence[str] | None,
    date_from: datetime | str | None,
    date_to: datetime | str | None,
    limit: int,
    zone: tzinfo,
) -> Query:
    """Return the filters of a search for conversations. A date without a zone is in `zone`."""
    return Query(
        client_id=client_id,
        status=status,
        tags=parse_tags(tags or ()),
        date_from=None if date_from is None else parse_moment(date_from, field="date_from", zone=zone),
        date_to=None if date_to is None else parse_moment(date_to, field="date_to", zone=zone),
        limit=limit,
    )


def parse_question(query: object) -> str:
    """Return the question's text, truncated if very long; None means an empty question."""
    if query is None:
        return ""
    if not isinstance(query, str):
        raise InvalidInput(f"query must be text; got {shown(query)}", field="query", value=query)
    return query[:LONGEST_QUESTION].strip()


def parse_limit(value: object, *, field: str) -> int:
    return check_count(value, field=field, least=1)


def analyze_question(question: str, *, now: datetime, zone: tzinfo) -> AnalyzedQuestion:
    """Extract terms and periods from the question."""
    terms = tuple(dict.fromkeys(terms_of(question)))[:MOST_TERMS]
    periods = find_periods(question, now=now.astimezone(zone)).periods
    return AnalyzedQuestion(terms=terms, periods=periods, cues=cues_of(question), zone=zone)


def sole_period(question: str, *, now: datetime, zone: tzinfo) -> Period | None:
    """Return the period of a question that asks for nothing else, such as "what did we discuss on
    Tuesday?".
    """
    dated = find_periods(question, now=now.astimezone(zone))
    only = dated.periods and _TALKING_TERMS.issuperset(terms_of(dated.rest))
    return dated.periods[0] if only else None


_TALKING_TERMS = frozenset(terms_of("talk say tell ask discuss speak chat mention conversation happen"))


def lookup_terms(analyzed: AnalyzedQuestion) -> tuple[str, ...]:
    """Return the terms to look up in the index: each term, and each as a speaker's name."""
    return (*analyzed.terms, *map(speaker_term, analyzed.terms))


def local_zone(zone: tzinfo | None) -> tzinfo:
    """Return the given zone, or that of this machine."""
    return zone or datetime.now(UTC).astimezone().tzinfo or UTC


def first_moment(text: str | None, *, field: str, zone: tzinfo) -> datetime | None:
    """Return a moment, or the beginning of a day; in this zone if the text names none."""
    return None if text is None else _moment(text, field, zone, time.min)


def last_moment(text: str | None, *, field: str, zone: tzinfo) -> datetime | None:
    """Return a moment, or the end of a day; in this zone if the text names none."""
    return None if text is None else _moment(text, field, zone, time.max)


def _moment(text: str, field: str, zone: tzinfo, edge: time) -> datetime:
    try:
        moment = (
            datetime.combine(date.fromisoformat(text), edge)
            if len(text) <= len("2023-05-08")
            else datetime.fromisoformat(text)
        )
    except ValueError:
        raise InvalidInput(
            f"{field} must be a day or a moment in ISO 8601; got {shown(text)}", field=field, value=text
        ) from None
    return parse_moment(moment if moment.tzinfo else moment.replace(tzinfo=zone), field=field)
