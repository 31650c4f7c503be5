"""Aforesaid: conversation memory for AI assistants.

Read in this order: `model` (messages and conversations), `contracts` (what a store is), `memory` (the
manager, sliding window and chat history), `windows` (what a model receives), `stores` (the storage engines).
"""

from aforesaid.errors import AforesaidError
from aforesaid.memory.chats import ChatHistory
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.opening import Memory, open
from aforesaid.memory.sliding import ConversationMemoryManager
from aforesaid.model.contexts import Context, Report
from aforesaid.model.conversations import Channel, Conversation, Page, Priority, Status
from aforesaid.model.lifetimes import Archiving, Retention, RetentionRules
from aforesaid.model.messages import Message, Role, Turn
from aforesaid.settings import ConversationConfig, SlidingWindowConfig

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
    "Memory",
    "Message",
    "Page",
    "Priority",
    "Report",
    "Retention",
    "RetentionRules",
    "Role",
    "SlidingWindowConfig",
    "Status",
    "Turn",
    "open",
]
