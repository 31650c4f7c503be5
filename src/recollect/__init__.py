"""Recollect: conversation memory for assistants.

Where to read on, in this order: `messages` and `conversations` (what is kept), `contracts` (what a
store is), `manager` (the one door), `windows` (what a model receives), `stores` (where it is kept),
`sliding` and `chats` (two narrower doors to the same).
"""

from recollect.chats import ChatHistory
from recollect.contexts import Context, Report
from recollect.conversations import Channel, Conversation, Page, Priority, Status
from recollect.errors import RecollectError
from recollect.lifetimes import Archiving, Retention, RetentionRules
from recollect.manager import ConversationManager
from recollect.memory import Memory, open
from recollect.messages import Message, Role, Turn
from recollect.settings import ConversationConfig, SlidingWindowConfig
from recollect.sliding import ConversationMemoryManager

__all__ = [
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
    "RecollectError",
    "Report",
    "Retention",
    "RetentionRules",
    "Role",
    "SlidingWindowConfig",
    "Status",
    "Turn",
    "open",
]
