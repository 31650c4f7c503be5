"""The documented interfaces of other projects, under their documented names.

A project that was written for one of these interfaces changes its import line:

    from aforesaid.compat import ChatterboxConversationEntity, ConversationInput

Everything here is a part of Aforesaid or passes arguments on to one.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from aforesaid._internal.arguments import validated
from aforesaid.agents import (
    AgenticLoop,
    ConversationInput,
    ConversationResult,
    SupervisorAgent,
)
from aforesaid.agents import ConversationEntity as ChatterboxConversationEntity
from aforesaid.agents.tools import ToolRegistry
from aforesaid.contacts import ClientAssociationService
from aforesaid.contracts.plugins import HistoryStore as ConversationStore
from aforesaid.memory.chats import ChatHistory
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.sessions import SessionManager as S2SSessionManager
from aforesaid.memory.sliding import ConversationMemoryManager
from aforesaid.model.clock import Clock, system_clock
from aforesaid.settings import ConversationConfig as _Settings
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
]

M = TypeVar("M")


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
