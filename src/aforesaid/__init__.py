"""Aforesaid: conversation memory for AI assistants.

Read in this order: `model` (messages and conversations), `contracts` (what a store is), `memory` (the
manager, sliding window and chat history), `windows` (what a model receives), `stores` (the storage engines).
"""

from typing import TYPE_CHECKING, Any

from aforesaid.errors import AforesaidError
from aforesaid.layers.build import Layers
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory, open
from aforesaid.memory.options import ImageOptions, Models, Retention
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Channel, Conversation, Page, Priority, Status
from aforesaid.model.lifetimes import Archiving, RetentionRules
from aforesaid.model.messages import Message, Role, Turn
from aforesaid.settings import ConversationConfig, SlidingWindowConfig

# `connect` needs httpx, an optional package. The documented interfaces of other designs are rarely used, and
# only scripts use `sync`. All four are imported on first use; the rest is the core, which imports quickly.
if TYPE_CHECKING:
    from aforesaid import sync
    from aforesaid.memory.chats import ChatHistory
    from aforesaid.memory.sliding import ConversationMemoryManager
    from aforesaid.remote import connect

__all__ = [
    "AforesaidError",
    "Archiving",
    "Channel",
    "ChatHistory",
    "Context",
    "Conversation",
    "ConversationConfig",
    "ConversationManager",
    "ConversationMemoryManager",
    "ImageOptions",
    "Layers",
    "Memory",
    "Message",
    "Models",
    "Page",
    "Priority",
    "Report",
    "Retention",
    "RetentionRules",
    "Role",
    "SlidingWindowConfig",
    "Status",
    "Turn",
    "connect",
    "open",
    "sync",
]


def __getattr__(name: str) -> Any:
    """Import the names above and read the version at their first use."""
    match name:
        case "ChatHistory":
            from aforesaid.memory import chats

            return chats.ChatHistory
        case "ConversationMemoryManager":
            from aforesaid.memory import sliding

            return sliding.ConversationMemoryManager
        case "connect":
            from aforesaid import remote

            return remote.connect
        case "sync":
            # Not `from aforesaid import sync`, which would ask this function again.
            import aforesaid.sync as sync_module

            return sync_module
        case "__version__":
            from importlib.metadata import version

            return version("aforesaid")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
