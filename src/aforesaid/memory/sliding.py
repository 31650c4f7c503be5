"""The sliding window: store messages, return the newest that fit a token budget.

Conversations are sessions of a manager, on any store. A `ConversationWindow` in memory has the numbers of
each conversation; it is updated by every message and loaded again after a restart, or when another process
has changed the conversation. Messages outside the window are not removed from the store. Only a manager
created here, which stores in memory, removes messages that no window can reach any more.
"""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal, get_args

from msgspec import Struct

from aforesaid._internal.arguments import validated
from aforesaid._internal.bounded import BoundedDict
from aforesaid.contracts import Appended, TokenCounter
from aforesaid.contracts.listing import check_complete
from aforesaid.dialects import meaning_of, write
from aforesaid.errors import (
    InvalidInput,
    InvalidSetting,
    MissingExtra,
    RevisionConflict,
    StoreUnavailable,
    shown,
)
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, Role, parse_tags
from aforesaid.settings import SlidingWindowConfig
from aforesaid.tokens import Estimator, costs_by, count_tools, counter_for, ready
from aforesaid.windows import WindowPolicy
from aforesaid.windows.build import HEAD, leading_system
from aforesaid.windows.policies import shorten
from aforesaid.windows.sliding import ConversationWindow, Evicted, SlidingLimits

log = logging.getLogger("aforesaid.sliding")

# The tokens of the tool definitions, or the definitions themselves.
Tools = int | Sequence[Mapping[str, Any]]

OneList = Literal["openai_chat", "plain"]
"""The dialects in which a request is one list, including system messages."""

# The tag of these conversations; a second tag adds the id.
LABEL = "sliding_window"

# Maximum number of windows in memory, about a kilobyte per hundred messages each. Windows of conversations
# that were used least recently are loaded again when needed.
MAX_WINDOWS = 10_000

# Messages that loading a window reads first. It reads more while the messages do not fill the window.
FIRST_READ = 256

# Additional messages to read, for messages that are added meanwhile.
MARGIN = 8

_PAGE = 200


class _Loaded(Struct, kw_only=True):
    """A window, and the state of the conversation that it reflects."""

    window: ConversationWindow
    conversation_id: str
    revision: int
    expires_at: datetime | None
    newest: datetime | None

    def reflects(self, record: Conversation) -> bool:
        return (self.conversation_id, self.revision) == (record.id, record.revision)

    def precedes(self, appended: Appended) -> bool:
        """Return whether only the new entries are missing here, and in this order."""
        record = appended.conversation
        if (self.conversation_id, self.revision + 1) != (record.id, record.revision):
            return False
        return all(_in_order(self.newest, entry.message.timestamp) for entry in appended.new)


def _in_order(before: datetime | None, after: datetime | None) -> bool:
    return before is None or (after is not None and before <= after)


@validated
class ConversationMemoryManager:
    """Conversations with a sliding window of tokens.

    - `manager`: the owner's handle (`memory.of(owner)`); by default a new one that stores in memory only.
    - `model`: the model whose tokens are counted; "gpt-4" uses `cl100k_base`. Without the extra `tokens` the
      count is an estimate, and a warning says so once.
    - `tools`: sent with every request, and counted against the budget.
    - `retention_ratio`: the oldest messages are evicted one at a time until the rest fits. A smaller ratio
      evicts more at once and then none for a while, so that the start of the request stays the same, as a
      provider's prompt cache requires.

    A tool call and its results are evicted together.
    """

    def __init__(
        self,
        manager: ManagerProtocol | None = None,
        *,
        config: SlidingWindowConfig | None = None,
        model: str = "gpt-4",
        tools: Tools = 0,
        dialect: OneList = "openai_chat",
        retention_ratio: float = 1.0,
    ) -> None:
        if dialect not in get_args(OneList):
            raise InvalidInput.not_in("dialect", dialect, get_args(OneList))
        self.config = config or SlidingWindowConfig()
        self._counter = _counter_for(model)
        self._manager = (manager or ConversationManager()).counting_with(self._counter)
        self._may_forget = manager is None and self.config.sliding_window_enable
        self._dialect = dialect
        self._tools = tools
        self._policy = _policy_for(self.config, tools, retention_ratio)
        # Without a store, a window that was dropped here would leave a conversation without statistics.
        self._windows: BoundedDict[str, _Loaded] = BoundedDict(MAX_WINDOWS if manager else sys.maxsize)

    async def add_message(
        self, conversation_id: str, role: Role, content: Any, tags: Iterable[str] | None = None
    ) -> None:
        """Add a message. `conversation_id` is any text; the first message creates the conversation.

        Content is text, any JSON, or a whole message of that role as a provider or its SDK returns it, such
        as tool calls and results. Each message implicitly has the tag of its role: `input`, `output` or
        `system`.
        """
        labels = () if tags is None else parse_tags(tags)
        message = self._message(role, content, labels)
        appended = await self._manager.append_to_session(
            conversation_id, [message], channel="text", tags=_labels(conversation_id)
        )
        await self._follow(conversation_id, appended)
        if self._may_forget:
            await self._forget_unreachable(appended)

    def _message(self, role: Role, content: Any, labels: tuple[str, ...]) -> Message:
        if isinstance(content, dict) and content.get("role") == role:
            (message,) = self._manager.intake.messages(content)
            return message.with_(tags=parse_tags((*message.tags, *labels)))
        return self._manager.intake.message(role, content, tags=labels)

    async def get_messages(
        self, conversation_id: str, tag_filter: Iterable[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages that fit, oldest first; with `tag_filter`, those with any of these tags.

        When tools and system messages alone exceed the budget, log a warning and return the newest messages
        anyway.
        """
        tags = frozenset(() if tag_filter is None else parse_tags(tag_filter, field="tag_filter"))
        name = parse_name(conversation_id, field="conversation_id")
        record = await self._manager.session(name)
        if record is None:
            self._windows.pop(name, None)
            return []
        loaded = self._windows.use(name)
        if loaded is None or not loaded.reflects(record):
            loaded = await self._load(name, record)
        messages = await self._read(loaded.window, record)
        messages = self._shortened(messages, self._excess(loaded.window))
        if tags:
            messages = [message for message in messages if loaded.window.has_any(message, tags)]
        return _rendered(messages, self._dialect)

    async def reset_conversation(self, conversation_id: str) -> None:
        """Remove the conversation with all its messages. A missing one is not an error."""
        _, label = _labels(conversation_id)
        await self._manager.delete_session(conversation_id, tag=label)
        self._windows.pop(conversation_id, None)

    def get_stats(self, conversation_id: str) -> dict[str, Any]:
        """Return the numbers of the window in memory, without reading the store.

        Every `add_message` and `get_messages` of this object updates them. After a restart a conversation
        exists here once one of them was called. `current_tokens` counts the whole request including tools;
        `utilization` is a percentage of `max_tokens`, above 100 where the window is disabled and the
        conversation has outgrown it.
        """
        loaded = self._windows.get(parse_name(conversation_id, field="conversation_id"))
        most = self.config.sliding_window_max_tokens
        if loaded is not None and loaded.expires_at is not None and loaded.expires_at <= self._manager.now():
            loaded = None
        tools = self._tools if isinstance(self._tools, int) else 0
        tokens = 0 if loaded is None else loaded.window.tokens + tools
        return {
            "exists": loaded is not None,
            "message_count": 0 if loaded is None else len(loaded.window),
            "current_tokens": tokens,
            "max_tokens": most,
            "utilization": 100.0 * tokens / most,
            "tag_distribution": {} if loaded is None else dict(sorted(loaded.window.tags.items())),
        }

    async def get_all_conversations(self) -> list[str]:
        """Return the ids of all conversations, most recently active first."""
        found: dict[str, None] = {}
        after: str | None = None
        while True:
            page = check_complete(await self._manager.list(tags=(LABEL,), limit=_PAGE, after=after))
            found |= dict.fromkeys(name for record in page.conversations for name in _named(record.tags))
            after = page.next
            if after is None:
                return list(found)

    # The window in memory

    async def _follow(self, name: str, appended: Appended) -> None:
        """Update the window by new entries; load it where it does not reflect what was before them."""
        record = appended.conversation
        loaded = self._windows.use(name)
        if record.message_count == len(appended.new):  # the first message
            loaded = self._windows[name] = await self._empty(record)
        elif loaded is None or not loaded.precedes(appended):
            await self._load(name, record)
            return
        for entry in appended.new:
            _log_eviction(self._add(loaded, entry.message))
        loaded.revision, loaded.expires_at = record.revision, record.expires_at

    async def _empty(self, record: Conversation) -> _Loaded:
        tools = await self._tools_tokens()  # the first use loads the counter, too
        config, policy = self.config, self._policy
        limits = SlidingLimits(
            max_tokens=config.sliding_window_max_tokens - tools if config.sliding_window_enable else None,
            preserve_system=config.sliding_window_preserve_system,
            retention_ratio=policy.retention_ratio,
            reach=policy.reach if config.sliding_window_enable else None,
        )
        return _Loaded(
            window=ConversationWindow(limits),
            conversation_id=record.id,
            revision=record.revision,
            expires_at=record.expires_at,
            newest=None,
        )

    async def _load(self, name: str, record: Conversation) -> _Loaded:
        """Load the window: apply the limits to the newest messages, as if they were added now."""
        loaded = await self._empty(record)
        messages, at_start = await self._newest_messages(record)
        if not at_start and self.config.sliding_window_preserve_system:
            for message in await self._leading(record):
                self._add(loaded, message)
        for message in messages:
            self._add(loaded, message)
        self._windows[name] = loaded
        return loaded

    def _add(self, loaded: _Loaded, message: Message) -> Evicted | None:
        loaded.newest = message.timestamp
        return loaded.window.add(message, costs_by(self._counter)(message))

    async def _newest_messages(self, record: Conversation) -> tuple[list[Message], bool]:
        """Return the newest messages, enough to fill the window, and whether these are all."""
        enabled = self.config.sliding_window_enable
        most = max(1, min(record.message_count, self._policy.reach) if enabled else record.message_count)
        size = min(FIRST_READ, most) if enabled else most
        while True:
            context = await self._manager.load_context(record.id, policy=_newest(size))
            if size >= most or self._fills_window(context.messages):
                return list(context.messages), size >= record.message_count
            size = min(most, 4 * size)

    def _fills_window(self, messages: Sequence[Message]) -> bool:
        """Return whether older messages were evicted, except important ones and system messages."""
        cost = costs_by(self._counter)
        going = (each for each in messages if each.role != "system" and "important" not in each.tags)
        return (
            sum(cost(each) for each in going if "ephemeral" not in each.tags)
            > self.config.sliding_window_max_tokens
        )

    async def _leading(self, record: Conversation) -> list[Message]:
        front = await self._manager.entries(record.id, limit=HEAD, offset=0)
        return [entry.message for entry in leading_system(front)]

    async def _read(self, window: ConversationWindow, record: Conversation) -> list[Message]:
        """Return the messages of the window from the store."""
        size = min(window.reaches_back + MARGIN, record.message_count + MARGIN)
        context = await self._manager.load_context(record.id, policy=_newest(size))
        leading: list[Message] = []
        if window.has_leading and size < record.message_count:
            known = {message.message_id for message in context.messages}
            leading = [each for each in await self._leading(record) if each.message_id not in known]
        return [message for message in (*leading, *context.messages) if message in window]

    def _excess(self, window: ConversationWindow) -> int:
        """Return the tokens above the budget, which no eviction can free, and log a warning."""
        budget = window.limits.max_tokens
        if budget is None or window.tokens <= budget:
            return 0
        most = self.config.sliding_window_max_tokens
        tools = most - budget
        if tools + window.system_tokens > most:
            fixed = tools + window.system_tokens
            log.warning("tools and system messages alone need %d tokens, but the budget is %d", fixed, most)
        else:
            log.warning(
                "the newest messages alone need %d tokens, but the budget is %d", window.tokens, budget
            )
        return window.tokens - budget

    def _shortened(self, messages: list[Message], excess: int) -> list[Message]:
        """Shorten tool results that are too large even alone."""
        if excess <= 0:
            return messages
        return list(shorten(messages, cost=costs_by(self._counter), excess=excess).messages)

    async def _tools_tokens(self) -> int:
        """Return the tokens of the tools, counted once. Load the counter."""
        await ready(self._counter)
        if not isinstance(self._tools, int):
            self._tools = count_tools(self._counter, self._tools)
        return self._tools

    async def _forget_unreachable(self, appended: Appended) -> None:
        """Remove messages that no window can reach, half of the stored ones at a time.

        So each message is copied about once: amortized O(1) per message.
        """
        record, reach = appended.conversation, self._policy.reach
        if record.message_count <= 2 * reach:
            return
        try:
            store = await self._manager.store.authoritative()
            head = leading_system(await store.page(record.id, limit=HEAD))
            latest = await store.tail(record.id, limit=reach)
            remaining = [entry.message for entry in (*head, *latest) if entry.unreadable is None]
            await store.rewrite(record.id, remaining, expected_revision=record.revision)
        except (RevisionConflict, StoreUnavailable):
            return  # a later message tries again
        log.info("removed %d messages that no window can reach", record.message_count - len(remaining))


@cache
def _warn_of_estimates() -> None:
    """Log once per process."""
    log.warning("tokens are estimated: install aforesaid[tokens] to count them exactly")


def _counter_for(model: str) -> TokenCounter:
    """Return the counter for a model; an estimate where tiktoken is not installed."""
    try:
        return counter_for(model)
    except MissingExtra:
        _warn_of_estimates()
        return Estimator()


def _policy_for(config: SlidingWindowConfig, tools: Tools, retention_ratio: float) -> WindowPolicy:
    _check_budget(config.sliding_window_max_tokens)
    return WindowPolicy(
        tools_tokens=tools if isinstance(tools, int) else 0,
        retention_ratio=retention_ratio,
    )


def _newest(size: int) -> WindowPolicy:
    """Return the policy of exactly the newest messages: only what was added, without notes and summary."""
    return WindowPolicy(max_messages=size, reach=size, summary_tokens=0, notes_tokens=0)


def _rendered(messages: Sequence[Message], dialect: str) -> list[dict[str, Any]]:
    """Render messages. A tool message that answers no call by id is returned as it was added."""
    rendered: list[dict[str, Any]] = []
    start = 0
    for at, message in enumerate(messages):
        if message.role == "tool" and not meaning_of(message).results:
            rendered += write(messages[start:at], dialect).messages
            rendered.append({"role": "tool", "content": message.content, **message.extra})
            start = at + 1
    return rendered + write(messages[start:], dialect).messages


def _log_eviction(evicted: Evicted | None) -> None:
    if evicted is not None:
        log.info("evicted %d messages with %d tokens", evicted.messages, evicted.tokens)


def _check_budget(most: object) -> None:
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InvalidSetting(
            f"sliding_window_max_tokens must be a whole number, 1 or more; got {shown(most)}",
            field="sliding_window_max_tokens",
            value=most,
        )


def _labels(conversation_id: str) -> tuple[str, str]:
    return LABEL, f"{LABEL}:{parse_name(conversation_id, field='conversation_id')}"


def _named(tags: Iterable[str]) -> Iterable[str]:
    return (tag.removeprefix(f"{LABEL}:") for tag in tags if tag.startswith(f"{LABEL}:"))
