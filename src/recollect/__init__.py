"""Recollect: conversation memory for assistants.

Where to read on, in this order: `messages` and `conversations` (what is kept), `contracts` (what a
store is), `manager` (the one door), `windows` (what a model receives), `stores` (where it is kept).
"""

from recollect.contexts import Context, Report
from recollect.conversations import Channel, Conversation, Page, Priority, Status
from recollect.errors import RecollectError
from recollect.manager import ConversationManager
from recollect.memory import Memory, open
from recollect.messages import Message, Role, Turn
from recollect.settings import ConversationConfig

__all__ = [
    "Channel",
    "Context",
    "Conversation",
    "ConversationConfig",
    "ConversationManager",
    "Memory",
    "Message",
    "Page",
    "Priority",
    "RecollectError",
    "Report",
    "Role",
    "Status",
    "Turn",
    "open",
]
