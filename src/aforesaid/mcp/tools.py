"""Implement the seven tools on one owner's manager. Every result fits a budget of tokens."""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from aforesaid.contracts import Entry
from aforesaid.errors import InvalidInput, InvalidSetting, MessageNotFound, NotAllowed
from aforesaid.mcp.results import (
    BranchResult,
    ConversationResult,
    ForgetResult,
    ForkResult,
    ListResult,
    NotesResult,
    ReadMessage,
    RememberResult,
    SearchResult,
    Truncated,
    branch_result,
    fitting,
    fork_result,
    found_passage,
    listed,
    note_result,
    parent_of,
    read_message,
    shortened,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.conversations import Conversation
from aforesaid.model.messages import Role
from aforesaid.search.queries import first_moment, last_moment, local_zone

# Tokens of a result, by the memory's own counter. Hosts refuse or shorten much longer ones.
MAX_TOKENS = 2000
# Tokens of a result beside its items: the notice, the fields, what was left out.
OVERHEAD_TOKENS = 300
MAX_ITEMS = 50
MAX_BRANCHES = 5
PAGE = 200

Scope = Literal["read", "write"]


class Access(Struct, frozen=True, kw_only=True):
    """Whose data a call may use, and whether it may change it."""

    manager: ManagerProtocol
    scope: Scope


class Tools:
    """The tools of one caller."""

    def __init__(self, access: Access, *, max_tokens: int = MAX_TOKENS) -> None:
        self._manager = access.manager
        self._scope = access.scope
        # At least one short item, however small the host's limit is.
        self._budget = max(max_tokens - OVERHEAD_TOKENS, 100)
        self._count: Callable[[str], int] = access.manager.intake.counter.count_text

    async def search_history(
        self, query: str, since: str | None, until: str | None, role: Role | None, limit: int
    ) -> SearchResult:
        """Return passages about a topic."""
        _check_limit(limit)
        zone = local_zone(None)
        findings = await self._manager.search(
            query,
            limit,
            role=role,
            date_from=first_moment(since, field="since", zone=zone),
            date_to=last_moment(until, field="until", zone=zone),
        )
        passages = [found_passage(one) for one in findings.passages]
        # Whole passages only: a cut quotation could reverse its meaning.
        fit = fitting(passages, budget=self._budget, count=self._count)
        left = len(passages) - fit
        step = "Use a narrower query, `since` or `until`; read around a passage with read_conversation."
        return SearchResult(
            passages=passages[:fit],
            remark=findings.remark(asked=bool(query.strip())),
            left_out=Truncated(items=left, next_step=step) if left else None,
        )

    async def read_conversation(
        self, conversation_id: str, around: int | None, limit: int, from_character: int
    ) -> ConversationResult:
        """Return messages of one conversation: the last ones, or those around a number."""
        _check_limit(limit)
        if from_character < 0:
            raise InvalidInput("from_character must be 0 or greater", field="from_character")
        record = await self._manager.get_conversation(conversation_id)
        entries, before, after = await self._entries(record, around, limit)
        now = self._manager.now()
        messages = [read_message(entry, now=now, start=from_character) for entry in entries]
        branches = await self._branches(record)
        budget = self._budget - self._size(branches)
        first, fit = self._fitting_window(messages, around, budget)
        shown = messages[first : first + fit]
        left = None
        if len(messages) == 1 or (len(shown) == 1 and self._count(shown[0].quotation) > budget):
            left = self._shorten(shown, from_character, budget)
        if left is None:
            missing = before + after + len(messages) - len(shown)
            left = Truncated(items=missing, next_step=_how_to_page(shown)) if missing else None
        return ConversationResult(
            conversation_id=record.id,
            subject=record.subject,
            client_name=record.client_name,
            message_count=record.message_count,
            branch_of=parent_of(record),
            branches=branches,
            messages=shown,
            left_out=left,
        )

    async def _branches(self, record: Conversation) -> list[BranchResult]:
        """Return the latest other paths of the conversation; none where the store has no branches, and for a
        participant, who has no access to other conversations of the owner."""
        try:
            found = await self._manager.branches(record.id)
        except (InvalidSetting, NotAllowed):
            return []
        others = [one for one in found if one.conversation_id != record.id]
        others.sort(key=lambda one: one.last_activity, reverse=True)
        return [branch_result(one) for one in others[:MAX_BRANCHES]]

    def _size(self, items: Sequence[BranchResult]) -> int:
        return sum(self._count(one.model_dump_json(indent=2)) for one in items)

    async def _entries(
        self, record: Conversation, around: int | None, limit: int
    ) -> tuple[list[Entry], int, int]:
        """Return the entries, and how many there are before and after them."""
        if around is None:
            offset = max(record.message_count - limit, 0)
        else:
            offset = max(await self._offset_of(record, around) - limit // 2, 0)
        entries = await self._manager.entries(record.id, limit, offset)
        return entries, offset, max(record.message_count - offset - len(entries), 0)

    async def _offset_of(self, record: Conversation, number: int) -> int:
        """Return where the message with this number is in the log. Numbers are sequences: mostly the same
        order, with gaps after a cleared history.
        """
        # A scan, because no store finds a message by its number. It costs as much as reading the
        # conversation once.
        for offset in range(0, record.message_count, PAGE):
            for at, entry in enumerate(await self._manager.entries(record.id, PAGE, offset)):
                if entry.sequence == number:
                    return offset + at
        raise MessageNotFound(record.id, str(number))

    def _fitting_window(
        self, messages: list[ReadMessage], around: int | None, budget: int
    ) -> tuple[int, int]:
        """Return which messages fit: around a number, or else the last ones."""
        if not messages:
            return 0, 0
        # Grow the window from the message that was asked for, which is therefore always part of it.
        anchor = next((at for at, one in enumerate(messages) if one.number == around), len(messages) - 1)
        low = high = anchor
        used = self._count(messages[anchor].model_dump_json(indent=2))
        while low > 0 or high < len(messages) - 1:
            candidates = [at for at in (low - 1, high + 1) if 0 <= at < len(messages)]
            costs = {at: self._count(messages[at].model_dump_json(indent=2)) for at in candidates}
            # The cheaper neighbour first: more messages fit, and one long message does not hide
            # the other side.
            at = min(candidates, key=lambda one: costs[one])
            if used + costs[at] > budget:
                break
            used += costs[at]
            low, high = min(low, at), max(high, at)
        return low, high - low + 1

    def _shorten(self, shown: list[ReadMessage], start: int, budget: int) -> Truncated | None:
        """Cut one long message; return how to get the rest."""
        message = shown[0]
        text = shortened(message.quotation, budget=budget, count=self._count)
        if text == message.quotation:
            return None
        rest = len(message.quotation) - len(text)
        shown[0] = message.model_copy(update={"quotation": text})
        step = (
            f"{rest:,} characters of this message follow: call read_conversation with "
            f"around={message.number}, limit=1, from_character={start + len(text)}."
        )
        return Truncated(items=0, next_step=step)

    async def fork_conversation(
        self, conversation_id: str, at: int | None, subject: str | None
    ) -> ForkResult:
        """Create a branch that continues a conversation, from the message with this number on."""
        self._check_write()
        record = await self._manager.get_conversation(conversation_id)
        message_id = None if at is None else await self._message_id(record, at)
        return fork_result(await self._manager.fork(record.id, at=message_id, subject=subject))

    async def _message_id(self, record: Conversation, number: int) -> str:
        offset = await self._offset_of(record, number)
        (entry,) = await self._manager.entries(record.id, 1, offset)
        if entry.message.message_id is None:
            raise InvalidInput(f"message {number} has no id, so no branch can begin there", field="at")
        return entry.message.message_id

    async def list_conversations(
        self, since: str | None, client: str | None, limit: int, after: str | None
    ) -> ListResult:
        """Return conversations without messages, most recently active first."""
        _check_limit(limit)
        date_from = first_moment(since, field="since", zone=local_zone(None))
        page = await self._manager.list(client_id=client, date_from=date_from, limit=limit, after=after)
        now = self._manager.now()
        found = [listed(record, now=now) for record in page.conversations]
        fit = fitting(found, budget=self._budget, count=self._count)
        left, step = len(found) - fit, "Call list_conversations with a smaller `limit`."
        cursor = page.next
        if cursor is not None and not left:
            step = f"There are more: call list_conversations with after={cursor!r}."
        has_more = bool(left) or cursor is not None
        return ListResult(
            conversations=found[:fit],
            left_out=Truncated(items=left, next_step=step) if has_more else None,
        )

    async def recall(self, topic: str, limit: int) -> NotesResult:
        """Return notes about a topic."""
        _check_limit(limit)
        notes = [note_result(note) for note in await self._manager.recall(topic, limit)]
        fit = fitting(notes, budget=self._budget, count=self._count)
        left = len(notes) - fit
        step = "Call recall with a narrower topic."
        return NotesResult(
            notes=notes[:fit], left_out=Truncated(items=left, next_step=step) if left else None
        )

    async def remember(self, text: str, about: str | None) -> RememberResult:
        """Store a note."""
        self._check_write()
        # Read before writing: the answer shows the model what its note has replaced.
        before = await self._manager.notes()
        note = await self._manager.remember(text, subject=about)
        replaced = [note_result(one) for one in before if one.about == note.about and one.id != note.id]
        return RememberResult(note=note_result(note), replaced=replaced)

    async def forget(self, note_id: str) -> ForgetResult:
        """Remove one note."""
        self._check_write()
        # By id only. `forget` of the manager also takes words, and a model's words could match
        # other notes.
        note = await self._manager.get_note(note_id)
        return ForgetResult(removed=[note_result(one) for one in await self._manager.forget(note.id)])

    def _check_write(self) -> None:
        if self._scope != "write":
            raise NotAllowed("this needs the scope write; this server may only read")


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_ITEMS:
        raise InvalidInput(f"limit must be 1 to {MAX_ITEMS}; got {limit}", field="limit", value=limit)


def _how_to_page(shown: list[ReadMessage]) -> str:
    if not shown:
        return "Call read_conversation with `around`."
    return (
        f"Call read_conversation with around={shown[0].number} for earlier messages, or "
        f"around={shown[-1].number} for later ones."
    )
