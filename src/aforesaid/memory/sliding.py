"""The sliding window: messages in, the newest that fit a token budget out. Below: the manager.

A face, no more: conversations are sessions of a manager, so they are kept on whichever store that
has, and the window is the one of `windows`. Nothing is thrown away to make room: what does not fit
is left out when messages are read, and logged (`aforesaid.windows`). Only a manager of this face's
own, which keeps everything in memory, lets go of what no window could reach any more.
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
"""What tool definitions cost in tokens, or the definitions themselves."""

OneList = Literal["openai_chat", "plain"]
"""The dialects in which a request is one list, system messages included."""

LABEL = "sliding_window"
"""Conversations of this face have this tag, and one with their id behind it."""

LOOK_BACK = 64
"""How many groups before the cut system messages stay, besides those that the conversation opens with."""

_PAGE = 200


@validated
class ConversationMemoryManager:
    """Conversations behind a sliding window of tokens. Every method is awaited, `get_stats` too.

    `manager` says where they are kept and whose they are (`memory.of(owner)`); without one, in this
    process. `model` is whose tokens are counted: "gpt-4" is counted with `cl100k_base`. `tools` is
    what every request carries besides messages, and counts against the budget.

    The oldest messages are left out first, as few as will do. A smaller `retention_ratio` leaves out
    more at once, and then none for a while: the front of the request stays as it was, which is what
    a provider's prompt cache needs. Tool calls and their results are in together or out together.
    """

    def __init__(
        self,
        manager: ConversationManager | None = None,
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
        """Add a message. `conversation_id` is any text; a conversation begins with its first message.

        Content is text, any JSON, or a whole message of that role as a provider or its SDK writes it:
        that is how tool calls and their results come in. The tags `input`, `output` and `system` go without
        saying: each message has the one of its role.
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
        """The messages for a model, oldest first: those that fit, or of those with any of these tags.

        When tools and system messages alone exceed the budget, a warning is logged, and the newest
        messages are given all the same.
        """
        context = await self._window(conversation_id, tag_filter)
        return [] if context is None else write(context.messages, self._dialect).messages

    async def reset_conversation(self, conversation_id: str) -> None:
        """Remove the conversation with all its messages. What is not there is no error."""
        _, label = _labels(conversation_id)
        await self._manager.delete_session(conversation_id, tag=label)

    async def get_stats(self, conversation_id: str) -> dict[str, Any]:
        """The window in numbers: what `get_messages` would give now.

        `current_tokens` counts the whole request, tools included; `utilization` is percent of
        `max_tokens`, above 100 where the window is disabled and the conversation has outgrown it.
        """
        context = await self._window(conversation_id, None)
        stats = stats_of(context)
        most = self.config.sliding_window_max_tokens
        return stats | {"max_tokens": most, "utilization": 100.0 * stats["current_tokens"] / most}

    async def get_all_conversations(self) -> list[str]:
        """The ids of all conversations, the most recently active first."""
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
        """What the tools cost, counted once."""
        if not isinstance(self._tools, int):
            await ready(self._counter)
            self._tools = count_tools(self._counter, self._tools)
        return self._tools

    async def _forget_unreachable(self, appended: Appended) -> None:
        """Let go of what lies beyond the reach of any window, half of what is held at a time.

        So each message is moved about once: O(1) for a message on average, however long it goes on.
        """
        record, reach = appended.conversation, self._policy.reach
        if record.message_count <= 2 * reach:
            return
        try:
            store = await self._manager.store.authoritative()
            head = leading_system(await store.page(record.id, limit=HEAD))
            latest = await store.tail(record.id, limit=reach)
            kept = [entry.message for entry in (*head, *latest) if entry.unreadable is None]
            await store.rewrite(record.id, kept, expected_revision=record.revision)
        except (RevisionConflict, StoreUnavailable):
            return  # a later message does this
        log.info("evicted: %d messages that no window reaches any more", record.message_count - len(kept))


def _policy_for(config: SlidingWindowConfig, tools: Tools, retention_ratio: float) -> WindowPolicy:
    _check_budget(config.sliding_window_max_tokens)
    return WindowPolicy(
        max_tokens=config.sliding_window_max_tokens if config.sliding_window_enable else None,
        preserve_system=config.sliding_window_preserve_system,
        tools_tokens=tools if isinstance(tools, int) else 0,
        retention_ratio=retention_ratio,
        look_back=LOOK_BACK,
        summary_tokens=0,
        notes_tokens=0,  # this face gives back what was added to it, and nothing else
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
