"""OpenAI Agents SDK: `AforesaidSession`, a session whose items are messages of the log."""

from collections.abc import Sequence
from typing import Any

import msgspec
from agents.memory.session import SessionABC
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit
from msgspec import UNSET

from aforesaid.adapters._transcripts import (
    Transcript,
    check_manager,
    message_of,
    open_manager,
    source_of,
)
from aforesaid.contracts import Entry
from aforesaid.dialects import read
from aforesaid.errors import InvalidInput
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, starts_turn

__all__ = ["AforesaidSession", "open_manager"]

FRAMEWORK = "openai-agents"
NATIVE = "openai_responses"
COMPACTED = "state/openai-agents.compacted"
TEXTS = ("input_text", "output_text", "text", "refusal")


class AforesaidSession(SessionABC):
    """A session over one owner's memory.

        session = AforesaidSession("user-7", memory.of("kim"))
        await Runner.run(agent, "Hello", session=session)

    With `keep_turns`, compaction hides older turns from the agent; the log keeps them, and search finds them.
    """

    def __init__(
        self,
        session_id: str,
        manager: ManagerProtocol,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        keep_turns: int | None = None,
        prefix: str = "openai-agents/",
    ) -> None:
        if keep_turns is not None and keep_turns < 1:
            raise InvalidInput(f"keep_turns must be 1 or greater; got {keep_turns}", field="keep_turns")
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self.manager = check_manager(manager)
        self.keep_turns = keep_turns
        self._transcript = Transcript(manager, prefix + session_id)
        self._closed = False

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        """Return the newest items in order, those of the log since the last compaction."""
        self._check_open()
        limit = resolve_session_limit(limit, self.session_settings)
        # No history wanted: that needs no read.
        if limit == 0:
            return []
        if limit is not None and limit > 0:
            # Removed messages make a log shorter, never longer, so the last `limit` are enough.
            messages = await self._transcript.messages(last=limit)
        else:
            messages = [entry.message for entry in await self._visible()]
        return [item_of(message) for message in messages]

    async def add_items(self, items: Sequence[Any], *, wrapper: Any = None) -> None:
        """Store items as one turn, all of them or nothing."""
        self._check_open()
        await self._transcript.append([to_log(item) for item in items])

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        """Remove the newest item and return it; None where there is none. Two callers get different items."""
        self._check_open()
        # A conditional rewrite: two agents that pop at once must not get the same item.
        popped = await self._transcript.change(lambda messages: messages[:-1] if messages else None)
        return item_of(popped[-1]) if popped else None

    async def clear_session(self, *, wrapper: Any = None) -> None:
        """Remove all items."""
        self._check_open()
        await self._transcript.clear()

    async def run_compaction(self, args: Any = None) -> None:
        """Hide all but the last `keep_turns` turns from the agent. Without it, nothing is hidden."""
        if self.keep_turns is None:
            return
        entries = await self._visible()
        starts = [entry.sequence for entry in entries if starts_turn(entry.message)]
        if len(starts) <= self.keep_turns:
            return
        # A boundary is kept as a sequence, which stays valid when messages are added or redacted.
        first = starts[-self.keep_turns]
        await self.manager.put_document(
            COMPACTED, "first", msgspec.json.encode(first), conversation_id=self._transcript.name
        )

    async def _visible(self) -> list[Entry]:
        entries = await self._transcript.entries()
        if self.keep_turns is None:
            return entries
        document = await self.manager.get_document(COMPACTED, "first", conversation_id=self._transcript.name)
        first = 0 if document is None else msgspec.json.decode(document.data, type=int)
        return [entry for entry in entries if entry.sequence >= first]

    def close(self) -> None:
        """Refuse further calls. The memory stays open: the program that opened it closes it."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            # The error of the SDK's own session.
            raise RuntimeError(f"{type(self).__name__} is closed")


def to_log(item: Any) -> Message:
    """Return an item as a message: in its own form where that is exact, and else with the item as source."""
    if not isinstance(item, dict):
        raise InvalidInput(f"an item must be a dict; got {type(item).__name__}", field="items")
    try:
        (message,) = read(item, dialect=NATIVE)
        # Only if the way back gives the same item: windows and search understand the native form
        # better.
        if _is_simple(message) and item_of(message) == item:
            return message.with_(message_id=new_id())
    except (InvalidInput, ValueError):
        pass  # an item that only the framework understands
    return _with_source(item)


def item_of(message: Message) -> Any:
    """Return the item of a message; that of another program's message is made from its text."""
    source = source_of(message, FRAMEWORK)
    if source is not None:
        return source
    if message.dialect != NATIVE:
        return {"role": "user" if message.role == "tool" else message.role, "content": message.content}
    item = dict(message.extra)
    if message.content is not UNSET:
        item = {"role": message.role, "content": message.content, **item}
    return item


def _is_simple(message: Message) -> bool:
    """Return whether the log keeps the content as it is: images move out of it."""
    content = message.content
    if content is UNSET or isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") in TEXTS for part in content
    )


def _with_source(item: dict[str, Any]) -> Message:
    content = item.get("content")
    parts = content if isinstance(content, list) else [content or item.get("output") or ""]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    role = item.get("role")
    return message_of(
        FRAMEWORK,
        "user" if role == "user" else "system" if role in ("system", "developer") else "assistant",
        "\n".join(text for text in texts if isinstance(text, str)),
        item,
        message_id=new_id(),
    )
