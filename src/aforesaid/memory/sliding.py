"""The sliding window: store messages, return the newest that fit a token budget.

Conversations are sessions of a manager, on any store. Messages outside the window are omitted when reading,
and logged (`aforesaid.windows`), but not removed. Only a manager created here, which stores in memory,
removes messages that no window can reach any more.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec.structs import replace

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Appended
from aforesaid.contracts.listing import check_complete
from aforesaid.dialects import write
from aforesaid.errors import InvalidInput, InvalidSetting, RevisionConflict, StoreUnavailable, shown
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.model.ids import parse_name
from aforesaid.model.messages import Message, Role, parse_tags
from aforesaid.settings import SlidingWindowConfig
from aforesaid.tokens import count_tools, counter_for, ready
from aforesaid.windows import WindowPolicy, stats_of
from aforesaid.windows.build import HEAD, leading_system

log = logging.getLogger("aforesaid.sliding")

Tools = int | Sequence[Mapping[str, Any]]
"""The tokens of the tool definitions, or the definitions themselves."""

OneList = Literal["openai_chat", "plain"]
"""The dialects in which a request is one list, including system messages."""

LABEL = "sliding_window"
"""The tag of these conversations; a second tag adds the id."""

LOOK_BACK = 64
"""How many groups before the cut system messages stay, in addition to the leading ones."""

_PAGE = 200


@validated
class ConversationMemoryManager:
    """Conversations with a sliding window of tokens. Every method is async, including `get_stats`.

    - `manager`: the owner's handle (`memory.of(owner)`); by default a new one that stores in memory only.
    - `model`: the model whose tokens are counted; "gpt-4" uses `cl100k_base`.
    - `tools`: sent with every request, and counted against the budget.
    - `retention_ratio`: the oldest messages are omitted first, as few as possible. A smaller ratio omits more
      at once and then none for a while, so that the start of the request stays the same, as a provider's
      prompt cache requires.

    A tool call and its results are included or omitted together.
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
        self._counter = counter_for(model)
        self._manager = (manager or ConversationManager()).counting_with(self._counter)
        self._may_forget = manager is None and self.config.sliding_window_enable
        self._dialect = dialect
        self._tools = tools
        self._policy = _policy_for(self.config, tools, retention_ratio)

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
        context = await self._window(conversation_id, tag_filter)
        return [] if context is None else write(context.messages, self._dialect).messages

    async def reset_conversation(self, conversation_id: str) -> None:
        """Remove the conversation with all its messages. A missing one is not an error."""
        _, label = _labels(conversation_id)
        await self._manager.delete_session(conversation_id, tag=label)

    async def get_stats(self, conversation_id: str) -> dict[str, Any]:
        """Return the numbers of the window that `get_messages` would return now.

        `current_tokens` counts the whole request including tools; `utilization` is a percentage of
        `max_tokens`, above 100 where the window is disabled and the conversation has outgrown it.
        """
        context = await self._window(conversation_id, None)
        stats = stats_of(context)
        most = self.config.sliding_window_max_tokens
        return stats | {"max_tokens": most, "utilization": 100.0 * stats["current_tokens"] / most}

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

    async def _window(self, conversation_id: str, tag_filter: Iterable[str] | None) -> Context | None:
        tags = () if tag_filter is None else parse_tags(tag_filter, field="tag_filter")
        record = await self._manager.session(parse_name(conversation_id, field="conversation_id"))
        if record is None:
            return None
        policy = replace(self._policy, tools_tokens=await self._tools_tokens(), tags=tags)
        return await self._manager.load_context(record.id, policy=policy)

    async def _tools_tokens(self) -> int:
        """Return the tokens of the tools, counted once."""
        if not isinstance(self._tools, int):
            await ready(self._counter)
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
        log.info("evicted %d messages that no window can reach", record.message_count - len(remaining))


def _policy_for(config: SlidingWindowConfig, tools: Tools, retention_ratio: float) -> WindowPolicy:
    _check_budget(config.sliding_window_max_tokens)
    return WindowPolicy(
        max_tokens=config.sliding_window_max_tokens if config.sliding_window_enable else None,
        preserve_system=config.sliding_window_preserve_system,
        tools_tokens=tools if isinstance(tools, int) else 0,
        retention_ratio=retention_ratio,
        look_back=LOOK_BACK,
        summary_tokens=0,
        notes_tokens=0,  # return only what was added
    )


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
