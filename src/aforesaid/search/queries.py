"""What a search is asked for: the question and its filters, checked once. Below: analysis, dates, ranking."""

from datetime import UTC, date, datetime, time, tzinfo
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contracts import Position
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.clock import parse_moment, to_micros
from aforesaid.model.conversations import VALUE_SETS, Channel, Conversation, check_count
from aforesaid.model.messages import ROLES, Message, Role, parse_text
from aforesaid.search.analysis import spoken_by, terms_of
from aforesaid.search.dates import Period, dated
from aforesaid.search.ranking import Asked

MOST_TERMS = 64
"""Different terms of a question that count: a page of text is a question, a book is not."""
LONGEST_QUESTION = 20_000
"""Characters of a question that are read."""


class Filters(Struct, frozen=True, kw_only=True):
    """Which messages count at all: every filter that is given applies."""

    role: Role | None = None
    date_from: datetime | None = None
    date_to: datetime | None = None
    """Said in [date_from, date_to]."""
    tag: str | None = None
    """The message or its conversation has this tag."""
    channel: Channel | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field) is not None for field in self.__struct_fields__)

    def by_place(self, role: Role | None, position: Position) -> bool:
        """What can be said without reading the message; of a role that is not known, nothing."""
        return (
            (role is None or self.role in (None, role))
            and (self.date_from is None or to_micros(self.date_from) <= position.micros)
            and (self.date_to is None or position.micros <= to_micros(self.date_to))
        )

    def is_past(self, position: Position) -> bool:
        """Whether this and everything before it was said too early."""
        return self.date_from is not None and position.micros < to_micros(self.date_from)

    def within(self, period: Period, *, now: datetime, zone: tzinfo) -> "Filters":
        """These filters, and the days of the period."""
        first, last = period.days(now.astimezone(zone).date())
        start, end = datetime.combine(first, time.min, zone), datetime.combine(last, time.max, zone)
        return replace(
            self,
            date_from=start if self.date_from is None else max(self.date_from, start),
            date_to=end if self.date_to is None else min(self.date_to, end),
        )

    def by_record(self, record: Conversation) -> bool:
        return self.channel in (None, record.channel)

    def by_tags(self, record: Conversation, message: Message) -> bool:
        return self.tag is None or self.tag in record.tags or self.tag in message.tags


def parse_filters(
    *,
    role: Any = None,
    date_from: datetime | str | None = None,
    date_to: datetime | str | None = None,
    tag: Any = None,
    channel: Any = None,
) -> Filters:
    """The filters, or an error that names the one that cannot be used."""
    if role is not None and role not in ROLES:
        raise InvalidInput.not_in("role", role, ROLES)
    if channel is not None and channel not in VALUE_SETS["channel"]:
        raise InvalidInput.not_in("channel", channel, VALUE_SETS["channel"])
    return Filters(
        role=role,
        date_from=None if date_from is None else parse_moment(date_from, field="date_from"),
        date_to=None if date_to is None else parse_moment(date_to, field="date_to"),
        tag=None if tag is None else parse_text(tag, field="tag"),
        channel=channel,
    )


def parse_question(query: object) -> str:
    """Any text at all, its beginning if it is very long; None is the empty question."""
    if query is None:
        return ""
    if not isinstance(query, str):
        raise InvalidInput(f"query must be text; got {shown(query)}", field="query", value=query)
    return query[:LONGEST_QUESTION].strip()


def parse_limit(value: object, *, field: str) -> int:
    return check_count(value, field=field, least=1)


def asked_of(question: str, *, now: datetime, zone: tzinfo) -> Asked:
    """The question, taken apart."""
    terms = tuple(dict.fromkeys(terms_of(question)))[:MOST_TERMS]
    periods = dated(question, now=now.astimezone(zone)).periods
    return Asked(terms=terms, periods=periods, zone=zone)


def day_asked_for(question: str, *, now: datetime, zone: tzinfo) -> Period | None:
    """The time that the question is all about, as in "what did we talk about last Tuesday?"."""
    when = dated(question, now=now.astimezone(zone))
    only = when.periods and _ABOUT_TALKING.issuperset(terms_of(when.rest))
    return when.periods[0] if only else None


_ABOUT_TALKING = frozenset(terms_of("talk say tell ask discuss speak chat mention conversation happen"))


def looked_up(asked: Asked) -> tuple[str, ...]:
    """What the index is asked for: the terms, and each as the name of who speaks."""
    return (*asked.terms, *map(spoken_by, asked.terms))


def local_zone(zone: tzinfo | None) -> tzinfo:
    """The zone that was given, or that of this machine."""
    return zone or datetime.now(UTC).astimezone().tzinfo or UTC


def first_moment(text: str | None, *, field: str, zone: tzinfo) -> datetime | None:
    """The beginning of a day, or a moment; in this zone where the text names none."""
    return None if text is None else _moment(text, field, zone, time.min)


def last_moment(text: str | None, *, field: str, zone: tzinfo) -> datetime | None:
    """The end of a day, or a moment."""
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
