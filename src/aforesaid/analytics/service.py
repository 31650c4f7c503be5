"""One owner's analytics: answer from roll-ups, keep them up to date."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from aforesaid.analytics import BY, By
from aforesaid.contracts import ConversationStore
from aforesaid.errors import InvalidInput, NotAllowed
from aforesaid.model.clock import parse_moment
from aforesaid.model.conversations import check_channel, check_count
from aforesaid.model.ids import parse_uuid
from aforesaid.model.messages import Message, parse_text
from aforesaid.model.participants import participant_of

if TYPE_CHECKING:
    from aforesaid.analytics.records import RollUp
    from aforesaid.analytics.reports import Analytics
    from aforesaid.analytics.rollups import Dimension
    from aforesaid.analytics.topics import Topic, Topics
    from aforesaid.analytics.usage import UsageLog
    from aforesaid.contracts import Embedder

# The period without `date_from`, and the longest one.
USUAL = timedelta(days=30)
LONGEST = timedelta(days=3660)
# Messages that are older when they are stored were imported, or come from a queue.
LATE = timedelta(minutes=5)

# The most conversations of each period that a report about topics reads.
MOST_READ = 10_000

Filter = tuple["Dimension", str | None]


class AnalyticsProtocol(Protocol):
    """The part of a manager's interface for analytics."""

    async def analytics(
        self,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        *,
        by: By | None = None,
        channel: str | None = None,
        client_id: str | None = None,
        agent: str | None = None,
        fresh: bool = True,
    ) -> "Analytics":
        """Return the numbers of a period, by default of the last 30 days: counts, shares, percentiles."""

    async def recompute_analytics(self, *, keep_removed: bool = True) -> int:
        """Count every conversation again from its log; return how many."""

    async def set_topic(self, name: str, examples: Sequence[str]) -> "Topic":
        """Name a topic by example sentences. A known name gets the new examples."""

    async def delete_topic(self, name: str) -> bool:
        """Remove a topic. Return whether there was one."""

    async def topics(self) -> "list[Topic]":
        """Return the topics that were named, sorted by name."""

    async def topic_report(
        self,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        *,
        limit: int = 1000,
    ) -> "Topics":
        """Return what the conversations of a period are about, by default of the last 30 days."""


class OwnerAnalytics:
    """Reports about one owner's conversations."""

    def __init__(
        self,
        store: ConversationStore,
        usage: "UsageLog",
        embedder: "Callable[[], Embedder | None] | None" = None,
    ) -> None:
        self._store = store
        self._usage = usage
        self._embedder = embedder or (lambda: None)

    async def analytics(
        self,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        *,
        by: By | None = None,
        channel: str | None = None,
        client_id: str | None = None,
        agent: str | None = None,
        fresh: bool = True,
    ) -> "Analytics":
        """Return the numbers of a period, by default of the last 30 days: counts, shares, percentiles.

        - Days are days in UTC, and the days of `date_from` and `date_to` are part of the period.
        - `by` gives the numbers for each day, channel, client or agent as well.
        - `channel`, `client_id` or `agent` restricts the numbers to one of them, in total or by day.
        - What changed since the last count is counted first. `fresh=False` answers from what is counted, as
          after the last sweep.
        """
        # Loaded at the first use: few programs ask for numbers.
        from aforesaid.analytics.collection import collect
        from aforesaid.analytics.measures import Cell
        from aforesaid.analytics.reports import report

        self._refuse_participant()
        days = _period(date_from, date_to, self._store.now())
        only = _filter(by, channel, client_id, agent)
        counted_at = self._store.now()
        if fresh:
            await collect(self._store)
            await self._usage.write(self._store)
        cells: dict[str | None, Cell] = defaultdict(Cell)
        first, last = (day.isoformat() for day in days)
        async for roll_up in self._roll_ups(by, only, (first[:7], last[:7])):
            if by != "day":
                cells[roll_up.value if by else None].add(roll_up.between(first, last))
                continue
            for day, cell in roll_up.by_day.items():
                if first <= day <= last:
                    cells[day].add(cell)
        return report(days, by, cells, counted_at=counted_at)

    async def _roll_ups(
        self, by: By | None, only: Filter | None, months: tuple[str, str]
    ) -> AsyncIterator["RollUp"]:
        from aforesaid.analytics.records import RollUp, decode
        from aforesaid.analytics.rollups import roll_up_key, stored_roll_ups

        if only is None:
            dimension: Dimension = "all" if by in (None, "day") else by  # type: ignore[assignment]
            async for roll_up in stored_roll_ups(self._store, dimension, months):
                yield roll_up
            return
        for month in _months(*months):
            found = await self._store.get_document(*roll_up_key(only, month))
            if found is not None:
                yield decode(found.data, RollUp)

    async def recompute_analytics(self, *, keep_removed: bool = True) -> int:
        """Count every conversation again from its log; return how many.

        This includes conversations from before events were recorded. Conversations that were deleted or have
        expired stay in the numbers; `keep_removed=False` takes them out.
        """
        from aforesaid.analytics.collection import recompute

        self._refuse_participant()
        number = await recompute(self._store, keep_removed=keep_removed)
        await self._usage.write(self._store)
        return number

    async def set_topic(self, name: str, examples: Sequence[str]) -> "Topic":
        """Name a topic by example sentences. A known name gets the new examples."""
        from aforesaid.analytics.records import TOPICS, digest_of, encode
        from aforesaid.analytics.topic_reading import stored_topics
        from aforesaid.analytics.topics import MOST_TOPICS, parse_topic

        self._refuse_participant()
        topic = parse_topic(name, examples)
        known = [one.name for one in await stored_topics(self._store)]
        if topic.name not in known and len(known) >= MOST_TOPICS:
            raise InvalidInput(f"name: there can be {MOST_TOPICS} topics", field="name")
        await self._store.put_document(TOPICS, digest_of(topic.name), encode(topic))
        return topic

    async def delete_topic(self, name: str) -> bool:
        """Remove a topic. Return whether there was one."""
        from aforesaid.analytics.records import TOPICS, digest_of

        self._refuse_participant()
        return await self._store.delete_document(TOPICS, digest_of(name.strip()))

    async def topics(self) -> "list[Topic]":
        """Return the topics that were named, sorted by name."""
        from aforesaid.analytics.topic_reading import stored_topics

        self._refuse_participant()
        return await stored_topics(self._store)

    async def topic_report(
        self,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        *,
        limit: int = 1000,
    ) -> "Topics":
        """Return what the conversations of a period are about, by default of the last 30 days.

        - `topics`: conversations of each named topic, by the similarity of their questions to its examples.
        - `new_terms`: terms that are more frequent than in the period of the same length before. Each occurs
          in five conversations or more. Names of clients and participants are left out.

        The latest `limit` conversations of each period are read. Nothing is stored, so the report after an
        erasure does not contain what was erased.
        """
        from aforesaid.analytics.topic_reading import read_topics

        self._refuse_participant()
        check_count(limit, field="limit", least=1, most=MOST_READ)
        days = _period(date_from, date_to, self._store.now())
        return await read_topics(self._store, self._embedder(), days, limit=limit)

    def _refuse_participant(self) -> None:
        if participant_of(self._store) is not None:
            raise NotAllowed("a participant has no access to the data of the owner")


def _period(
    date_from: datetime | str | None, date_to: datetime | str | None, now: datetime
) -> tuple[date, date]:
    last = now if date_to is None else parse_moment(date_to, field="date_to")
    # The first days of the calendar have no month before them.
    usual = max(last, datetime.min.replace(tzinfo=UTC) + USUAL) - USUAL
    first = usual if date_from is None else parse_moment(date_from, field="date_from")
    if first > last:
        raise InvalidInput("date_from must not be after date_to", field="date_from", value=date_from)
    if last - first > LONGEST:
        raise InvalidInput(
            f"date_from must be at most {LONGEST.days:,} days before date_to",
            field="date_from",
            value=date_from,
        )
    return first.astimezone(UTC).date(), last.astimezone(UTC).date()


def _filter(by: By | None, channel: str | None, client_id: str | None, agent: str | None) -> Filter | None:
    if by is not None and by not in BY:
        raise InvalidInput.not_in("by", by, BY)
    given: list[Filter] = []
    if channel is not None:
        given.append(("channel", check_channel(channel)))
    if client_id is not None:
        given.append(("client", parse_uuid(client_id, field="client_id")))
    if agent is not None:
        given.append(("agent", parse_text(agent, field="agent")))
    if len(given) > 1:
        raise InvalidInput("only one of channel, client_id and agent can be given", field=given[1][0])
    if given and by not in (None, "day"):
        raise InvalidInput(f"by must be 'day' or None together with {given[0][0]}", field="by", value=by)
    return given[0] if given else None


def _months(first: str, last: str) -> list[str]:
    year, month = map(int, first.split("-"))
    found = []
    while (name := f"{year:04}-{month:02}") <= last:
        found.append(name)
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
    return found


async def mark_late(store: ConversationStore, conversation_id: str, messages: Sequence[Message]) -> None:
    """Mark the conversation for the next count where all new messages have earlier times.

    The count lists conversations by their last activity, which such messages do not change. Messages without
    times, as nearly all are, cost nothing.
    """
    times = [message.timestamp for message in messages if message.timestamp is not None]
    if times and len(times) == len(messages) and max(times) <= store.now() - LATE:
        from aforesaid.analytics.events import mark_changed

        await mark_changed(store, conversation_id)
