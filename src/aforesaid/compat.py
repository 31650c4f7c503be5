"""The documented interfaces of other projects, under their documented names.

A project that was written for one of these interfaces changes its import line:

    from aforesaid.compat import ChatterboxConversationEntity, ConversationInput

Everything here is a part of Aforesaid or passes arguments on to one.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from aforesaid import contracts
from aforesaid._internal.arguments import validated
from aforesaid._internal.bounded import BoundedDict
from aforesaid.agents import (
    AgenticLoop,
    Assistants,
    ConversationInput,
    ConversationResult,
    Router,
    Specialist,
    apology_for,
)
from aforesaid.agents import ConversationEntity as _ConversationEntity
from aforesaid.agents import SupervisorAgent as _SupervisorAgent
from aforesaid.agents.supervisor import Sessions
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contracts import Ask, OnText, Reply
from aforesaid.contracts.plugins import HistoryStore as ConversationStore
from aforesaid.dialects import meaning_of
from aforesaid.errors import InvalidSetting, MissingExtra
from aforesaid.layers.cached import Cache, cached_store
from aforesaid.memory.chats import ChatHistory
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager as _Manager
from aforesaid.memory.sessions import Session, SessionManager, SessionPolicy
from aforesaid.memory.sliding import ConversationMemoryManager as _SlidingMemory
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import Channel, Conversation
from aforesaid.model.messages import ContentType, Message
from aforesaid.settings import ConversationConfig as _Settings
from aforesaid.settings import SlidingWindowConfig
from aforesaid.stores.histories import as_store
from aforesaid.stores.supabase import SCHEMA, SupabaseStore, is_client
from aforesaid.windows import WindowPolicy
from aforesaid.windows.sliding import ConversationWindow

__all__ = [
    "AgenticLoop",
    "ChatHistory",
    "ChatterboxConversationEntity",
    "ClientAssociationService",
    "ContextWindow",
    "ConversationCache",
    "ConversationConfig",
    "ConversationInput",
    "ConversationManager",
    "ConversationMemoryManager",
    "ConversationResult",
    "ConversationStore",
    "ConversationWindow",
    "S2SSessionManager",
    "SupervisorAgent",
    "ToolRegistry",
    "get_supabase_client",
]

M = TypeVar("M")
ToolDispatcher = Callable[[str, dict[str, Any]], Awaitable[str]]
"""Runs a tool by name and arguments."""


# Histories of an entity that are shown in this process.
MOST_HISTORIES = 1_000


@validated
class ChatterboxConversationEntity(_ConversationEntity):
    """`aforesaid.agents.ConversationEntity` with the arguments of the project of this name.

    - `provider`: a loop with `run(user_text, chat_history, tools)`, or a model with `complete(messages,
      tools)`, which is asked until it needs no more tools, at most `max_iterations` times.
    - `tool_dispatcher`: runs a tool by name and arguments, and returns its result as text.
    - `tools`: the definitions, given to `run` or `complete` unchanged.
    """

    def __init__(
        self,
        provider: Any,
        tool_dispatcher: ToolDispatcher | None = None,
        tools: Sequence[Any] | None = None,
        system_prompt: str | None = None,
        max_iterations: int = 10,
        name: str = "Chatterbox",
        max_history_turns: int = 20,
        auto_create_conversation_id: bool = False,
        *,
        memory: Any = None,
        store: ConversationStore | None = None,
        **options: Any,
    ) -> None:
        loop = provider if hasattr(provider, "run") else None
        if loop is None:
            loop = ProviderLoop(provider, tool_dispatcher, max_iterations, system_prompt)
        elif tools and isinstance(loop, AgenticLoop):
            options["tools"], tools = tools, None  # our own loop runs our own tools
        super().__init__(
            loop,
            memory=memory,
            store=store,
            max_history_turns=max_history_turns,
            auto_create_conversation_id=auto_create_conversation_id,
            **options,
        )
        self.name = name
        self.tools = list(tools or ())
        self.max_history_turns = max_history_turns
        self.auto_create_conversation_id = auto_create_conversation_id
        # The project's tests read this. Only a display: the memory or the store has the histories.
        self._histories: BoundedDict[str, list[dict[str, Any]]] = BoundedDict(MOST_HISTORIES)

    def _loop_for(self, user_input: Any) -> Any:
        loop = super()._loop_for(user_input)
        return loop if isinstance(loop, AgenticLoop) else _WithTools(loop, self.tools)

    async def async_process(self, user_input: Any) -> ConversationResult:
        """Answer an input. A failed turn leaves the history unchanged and returns an apology."""
        result = await super().async_process(user_input)
        if result.stored and result.conversation_id is not None:
            history = self._histories.get(result.conversation_id, [])
            turn = ("user", user_input.text), ("assistant", result.response_text)
            history = [*history, *({"role": role, "content": text} for role, text in turn)]
            self._histories[result.conversation_id] = history[-2 * self.max_history_turns :]
        return result

    def clear_history(self, conversation_id: str, user_input: Any = None) -> Awaitable[None]:
        """Delete a conversation. A plain call takes effect before the next input is answered."""
        self._histories.pop(conversation_id, None)
        return super().clear_history(conversation_id, user_input)

    def clear_all_history(self) -> Awaitable[None]:  # type: ignore[override]  # a plain call takes effect
        """Delete all conversations. A plain call takes effect before the next input is answered."""
        self._histories.clear()
        return self._started(super().clear_all_history())


class _WithTools:
    """A loop that gets these tools, in their own form."""

    def __init__(self, loop: Any, tools: Sequence[Any]) -> None:
        self._loop = loop
        self._tools = tools

    async def run(self, user_text: str, chat_history: Any, tools: Any) -> Any:
        return await self._loop.run(user_text=user_text, chat_history=chat_history, tools=self._tools)


class ProviderLoop:
    """Asks a model with `complete(messages, tools)` until it needs no more tools."""

    def __init__(
        self, provider: Any, dispatch: ToolDispatcher | None, max_iterations: int, system_prompt: str | None
    ) -> None:
        self.provider = provider
        self.tool_dispatcher = dispatch
        self.max_iterations = max_iterations
        self.system_prompt = system_prompt

    async def run(self, user_text: str, chat_history: Sequence[dict[str, Any]], tools: Any = None) -> str:
        """Return the answer. Raise `RuntimeError` after `max_iterations` requests."""
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        messages = [*system, *chat_history, {"role": "user", "content": user_text}]
        for _ in range(self.max_iterations):
            result = await self.provider.complete(messages, list(tools or ()))
            if result.finish_reason != "tool_calls" or not result.tool_calls:
                return str(result.content or "")
            messages.append(result.raw_message)
            messages += [await self._result_of(call) for call in result.tool_calls]
        raise RuntimeError(f"no answer after {self.max_iterations} requests")

    async def _result_of(self, call: Any) -> dict[str, Any]:
        if self.tool_dispatcher is None:
            raise InvalidSetting("tools need a tool_dispatcher", field="tool_dispatcher")
        try:
            content = await self.tool_dispatcher(call.name, call.arguments)
        except Exception as error:  # noqa: BLE001  the model may recover from a tool that fails
            content = f"{call.name} failed: {type(error).__name__}"
        return {"role": "tool", "tool_call_id": call.id, "content": content}


class ConversationMemoryManager(_SlidingMemory):
    """`aforesaid.memory.sliding.ConversationMemoryManager` that also takes the arguments of the project of
    this name: `hass` and `logger` are not needed, and `config` is any object with its options.
    """

    def __init__(
        self,
        manager: ManagerProtocol | None = None,
        *,
        hass: object = None,
        config: Any = None,
        logger: object = None,
        model: str | None = None,
        **options: Any,
    ) -> None:
        given = config
        if config is not None and not isinstance(config, SlidingWindowConfig):
            names = [name for name in SlidingWindowConfig.__struct_fields__ if hasattr(config, name)]
            given = SlidingWindowConfig(**{name: getattr(config, name) for name in names})
        chosen = model or getattr(config, "chat_model", None) or "gpt-4"
        super().__init__(manager, config=given, model=chosen, **options)

    def get_all_conversations(self) -> list[str]:  # type: ignore[override]  # a plain call there
        """Return the ids of the conversations with a window in this process."""
        return list(self._windows)


class ConversationManager(_Manager):
    """`aforesaid.ConversationManager` with the documented arguments.

    - `supabase_client`: a sync or async client of Supabase, whose user owns the conversations; or a store.
    - `context_window_size`: the number of recent messages in a context.
    """

    def __init__(
        self,
        supabase_client: object,
        context_window_size: int = 20,
        *,
        config: "ConversationConfig | _Settings | None" = None,
    ) -> None:
        settings = config.settings() if isinstance(config, ConversationConfig) else config or _Settings()
        sized = replace(settings, context_window_size=context_window_size)
        if is_client(supabase_client):
            # The lifetime of a row is a setting of the database.
            super().__init__(_supabase_store(supabase_client, sized.cache_ttl), config=sized, ttl=None)
        else:
            super().__init__(as_store(supabase_client), config=sized)


def _supabase_store(client: object, cache_ttl: int) -> contracts.ConversationStore:
    store = SupabaseStore(client)
    if cache_ttl <= 0:
        return store
    cache = Cache(ttl=timedelta(seconds=cache_ttl), watch=False)
    return cached_store(store, cache, name="supabase")


def get_supabase_client() -> Any:
    """Return a client of Supabase for `SUPABASE_URL` and `SUPABASE_KEY`, whose tables are those of `api`.

    Raise `InvalidSetting`, which names a missing variable, and `MissingExtra` without `aforesaid[supabase]`.
    """
    url, key = (_variable(name) for name in ("SUPABASE_URL", "SUPABASE_KEY"))
    try:
        from supabase import ClientOptions, create_client
    except ImportError as error:
        raise MissingExtra("a client of Supabase", extra="supabase") from error
    return create_client(url, key, ClientOptions(schema=SCHEMA))


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise InvalidSetting(f"{name} is not set", field=name)
    return value


@validated
class S2SSessionManager(SessionManager):
    """Sessions of a manager. `session_to_conversation` has those that this object started."""

    def __init__(self, conversation_manager: _Manager, *, policy: SessionPolicy | None = None) -> None:
        super().__init__(conversation_manager, policy)
        self.session_to_conversation: dict[str, str] = {}

    async def create_session(
        self,
        session_id: str,
        channel: Channel = "voice",
        *,
        device: str | None = None,
        conversation_id: str | None = None,
    ) -> Session:
        """Start a session in the conversation that the policy finds, or in a new one."""
        session = await super().create_session(
            session_id, channel, device=device, conversation_id=conversation_id
        )
        self.session_to_conversation[session_id] = session.conversation_id
        return session

    async def end_session(self, session_id: str) -> Conversation | None:
        """End the session and keep its conversation."""
        self.session_to_conversation.pop(session_id, None)
        return await super().end_session(session_id)


class _Routed:
    """The agent of a supervisor that routes by a method of its own."""

    dialect = "plain"

    def __init__(self, supervisor: "SupervisorAgent") -> None:
        self._supervisor = supervisor

    @property
    def name(self) -> str:
        return self._supervisor.agent_name

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        *history, question = ask.messages
        answer = await self._supervisor._route_to_agent(
            meaning_of(question).text, [message.to_dict() for message in history]
        )
        return Reply(messages=(Message(role="assistant", content=answer),))

    async def close(self) -> None:
        """Nothing was opened."""


@validated
class SupervisorAgent(_SupervisorAgent):
    """Answers with specialists, or with `_route_to_agent` of a subclass; without either, from the history.

    A subclass may set `agent_name` and `session_manager`.
    """

    agent_name = "supervisor_agent"
    session_manager: Sessions | None = None

    def __init__(
        self,
        conversation_manager: ManagerProtocol,
        specialists: Sequence[Specialist] | None = None,
        *,
        router: Router | None = None,
        sessions: Sessions | None = None,
        channel: Channel = "text",
        apology: Callable[[BaseException], str] = apology_for,
    ) -> None:
        # A class attribute of the subclass counts, as in the documented examples.
        self.session_manager = sessions or self.session_manager
        super().__init__(
            conversation_manager,
            specialists or [self._own_specialist(conversation_manager)],
            router=router,
            sessions=self.session_manager,
            channel=channel,
            apology=apology,
        )

    def _own_specialist(self, manager: ManagerProtocol) -> Specialist:
        # A subclass that overrides the method answers itself; otherwise the recall agent does.
        if type(self)._route_to_agent is SupervisorAgent._route_to_agent:
            return Assistants().specialist(manager)
        size = WindowPolicy(max_messages=manager.config.context_window_size)
        return Specialist(loop=AgenticLoop(_Routed(self)), policy=size)

    async def _route_to_agent(self, query: str, context: list[dict[str, Any]]) -> str:
        """Return the answer to a query. `context` has the messages before it."""
        raise NotImplementedError

    async def process_query(
        self,
        query: str | Message,
        session_id: str,
        conversation_id: str | None = None,
        *,
        content_type: ContentType = "text",
        device: str | None = None,
        on_text: OnText | None = None,
    ) -> str:
        """Answer a query and store the whole turn. Return the answer.

        A spoken query that the caller has stored already, as the last message, is not stored again.
        """
        if conversation_id is not None and isinstance(query, str):
            query = await self._stored_transcript(query, conversation_id) or query
        return await super().process_query(
            query,
            session_id,
            conversation_id,
            content_type=content_type,
            device=device,
            on_text=on_text,
        )

    async def _stored_transcript(self, query: str, conversation_id: str) -> Message | None:
        manager = self.conversation_manager
        # Only the last message can be this question: an earlier one with the same words is another
        # question.
        count = (await manager.get_conversation(conversation_id)).message_count
        for message in await manager.messages(conversation_id, 1, max(0, count - 1)):
            if (message.role, message.content_type, message.content) == ("user", "audio", query):
                return message
        return None


@validated
class ClientAssociationService:
    """Finds clients in messages among the manager's contacts, and links conversations to them."""

    def __init__(self, supabase_client: Any, conversation_manager: _Manager) -> None:
        self.supabase = supabase_client
        self.conversation_manager = conversation_manager

    async def identify_client(self, message_content: str) -> dict[str, Any] | None:
        """Return the contact that the message names; None if it names none or several."""
        match = await self.conversation_manager.association.identify_client(message_content)
        return None if match is None or match.client is None else match.client.to_dict()

    async def link_conversation_to_client(
        self, conversation_id: str, message_content: str
    ) -> Conversation | None:
        """Link the conversation to the contact that the message names. Return the record if it was linked."""
        client = await self.identify_client(message_content)
        if client is None:
            return None
        return await self.conversation_manager.associate_client(
            conversation_id=conversation_id, client_id=client["id"], client_name=client["name"]
        )


@validated
class ContextWindow:
    """The most recent messages of a list."""

    def __init__(self, size: int = 20) -> None:
        self.size = WindowPolicy(max_messages=size).max_messages

    def apply(self, messages: Sequence[M]) -> list[M]:
        """Return the last `size` messages; all if the size is 0."""
        return list(messages[-(self.size or 0) :])


@dataclass
class ConversationConfig:
    """The documented settings of a manager. `aforesaid.ConversationConfig` has all settings."""

    context_window_size: int = 20
    cache_ttl: int = 300
    search_limit: int = 50
    enable_client_association: bool = True
    enable_agent_filtering: bool = True

    def __post_init__(self) -> None:
        # Validate now, where the caller can see which argument is wrong.
        self.settings()

    @classmethod
    def from_env(cls) -> Self:
        """Read the settings from the environment. Raise `InvalidSetting`, which names the variable."""
        found = _Settings.from_env()
        return cls(**{name: getattr(found, name) for name in cls.__dataclass_fields__})

    def settings(self) -> _Settings:
        """Return the settings for `ConversationManager(config=...)`. Raise `InvalidSetting`."""
        return _Settings(**asdict(self))


@validated
class ConversationCache:
    """Conversations in memory for `ttl` seconds."""

    def __init__(self, ttl: int = 300, *, clock: Clock = system_clock) -> None:
        self.cache: dict[str, tuple[dict[str, Any], datetime]] = {}
        self.ttl = ttl
        self._clock = clock

    def get(self, conversation_id: str) -> dict[str, Any] | None:
        """Return the conversation; None if it is missing or has expired."""
        self._remove_expired()
        found = self.cache.get(conversation_id)
        return None if found is None else found[0]

    def set(self, conversation_id: str, conversation: dict[str, Any]) -> None:
        """Store the conversation until it expires."""
        self._remove_expired()
        self.cache.pop(conversation_id, None)  # so that the order is that of the times
        self.cache[conversation_id] = conversation, self._clock()

    def invalidate(self, conversation_id: str) -> None:
        """Remove the conversation."""
        self.cache.pop(conversation_id, None)

    def _remove_expired(self) -> None:
        earliest = self._clock() - timedelta(seconds=self.ttl)
        for conversation_id, (_, stored_at) in list(self.cache.items()):
            # Ordered by time, so the first entry that is still valid ends the search.
            if stored_at > earliest:
                return
            del self.cache[conversation_id]
