"""Note what requests contain and what searches find: numbers, no words.

Noting appends a value to a list in memory, so no turn waits for a store. The list is written before the next
count, and in the background when it is long. A process that ends abruptly loses what it has not written.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

from aforesaid._internal.tasks import Background, within
from aforesaid.analytics.noted import ContextUse, Noted, SearchUse, Tally, TallyName
from aforesaid.contracts import ConversationStore
from aforesaid.errors import AforesaidError
from aforesaid.model.contexts import Context
from aforesaid.model.ids import conversation_key
from aforesaid.telemetry import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("aforesaid.analytics")

# Values of one owner that start a write, and the most that are kept while the store is unavailable.
MANY, MOST = 1_000, 10_000
# Seconds that closing spends on the last write.
CLOSING_SECONDS = 5.0


class UsageLog:
    """What is noted of the owners of a memory and not written yet."""

    def __init__(self, store_of: Callable[[str], ConversationStore]) -> None:
        self._store_of = store_of
        self._noted: dict[str, list[Noted]] = {}
        self._background = Background(self.write_all, lambda: bool(self._noted), name="aforesaid-usage")

    def note(self, owner: str, noted: Noted) -> None:
        """Note a value for the next write."""
        values = self._noted.setdefault(owner, [])
        values.append(noted)
        if len(values) % MANY == 0:
            del values[:-MOST]
            self._background.begin_at(self._background.here().time)

    def sent(self, store: ConversationStore, conversation_id: str, context: Context) -> None:
        """Note the context of a request, unless it has nothing to send."""
        report = context.report
        if report.nothing_to_send is not None:
            return
        left_out = len(report.left_out) + report.not_read
        use = ContextUse(
            messages=len(context.messages),
            stable=report.stable_prefix,
            known=max(report.message_count, left_out),
            left_out=left_out,
            tokens=None if report.counter is None else report.tokens.total,
            summary_tokens=report.tokens.summary,
            notes=len(report.notes),
        )
        key = conversation_key(conversation_id, owner=store.owner)
        self.note(store.owner, Noted(key.id, store.now(), use))

    def searched(self, store: ConversationStore, texts: "Sequence[str]") -> None:
        """Note a search and, during an agent's turn, what it found."""
        turn = _turn.get()
        conversation_id = None if turn is None else turn.conversation_id
        noted = Noted(conversation_id, store.now(), SearchUse(len(texts)))
        self.note(store.owner, noted)
        if turn is not None and texts:
            turn.searches.append((self, store.owner, noted, texts))

    def counted(
        self,
        store: ConversationStore,
        name: TallyName,
        number: int = 1,
        *,
        conversation_id: str | None = None,
    ) -> None:
        """Note something that is only counted."""
        turn = _turn.get()
        if conversation_id is None and turn is not None:
            conversation_id = turn.conversation_id
        if number:
            self.note(store.owner, Noted(conversation_id, store.now(), Tally(name, number)))

    async def write(self, store: ConversationStore) -> None:
        """Write what is noted of the store's owner."""
        if store.owner not in self._noted:
            return
        from aforesaid.analytics.usage_rows import usage_batch

        whole = await store.authoritative()
        noted = self._noted.pop(store.owner)
        try:
            batch = await usage_batch(whole, noted)
        except AforesaidError:
            self._noted[store.owner] = [*noted, *self._noted.get(store.owner, [])][-MOST:]
            raise
        # From here on they may be written already, and must not be written again.
        await batch.write(whole)

    async def write_all(self) -> None:
        """Write what is noted of every owner. A failure is logged and raises nothing."""
        for owner in list(self._noted):
            try:
                await self.write(self._store_of(owner))
            except AforesaidError as error:
                log.warning("numbers of requests and searches are not written: %s", describe(error))

    async def remove_copies(
        self, owner: str, conversation_id: str | None, *, until: datetime | None = None
    ) -> Mapping[str, int]:
        """Forget what is noted of this conversation, or of everything the owner has."""
        kept = [
            one
            for one in self._noted.pop(owner, [])
            if (conversation_id is not None and one.conversation_id != conversation_id)
            or (until is not None and one.at > until)
        ]
        if kept:
            self._noted[owner] = kept
        return {}

    async def close(self) -> None:
        """Write what is left."""
        await self._background.close()
        try:
            await within(CLOSING_SECONDS, self.write_all())
        except TimeoutError:
            log.warning("numbers of requests and searches are not written: the store is too slow")


# An agent's turn: its searches belong to its conversation, and its answer may quote what they found.


class AgentTurn:
    """The searches of one turn of an agent that found something."""

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        self.searches: list[tuple[UsageLog, str, Noted, Sequence[str]]] = []

    def answered(self, text: str) -> None:
        """Note which searches the answer quotes."""
        if not self.searches:
            return
        from aforesaid.analytics.quotations import is_quoted

        for usage, owner, noted, texts in self.searches:
            usage.note(owner, noted._replace(use=Tally("searches_with_answer")))
            if is_quoted(texts, text):
                usage.note(owner, noted._replace(use=Tally("quoted_searches")))


_turn: ContextVar[AgentTurn | None] = ContextVar("aforesaid_agent_turn", default=None)


@contextmanager
def agent_turn(conversation_id: str) -> Iterator[AgentTurn]:
    """Attribute the searches and notes of this block, and of tasks that start in it, to a conversation."""
    turn = AgentTurn(conversation_id)
    token = _turn.set(turn)
    try:
        yield turn
    finally:
        _turn.reset(token)
