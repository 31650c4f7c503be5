"""LangGraph: a checkpoint saver, a store, a window as state, and tags as metadata.

saver        `AforesaidSaver`: checkpoints, with messages in the log
synchronous  its synchronous methods
values       channel values: references into the log, or serialized bytes
store        `AforesaidStore`: `BaseStore` with search and time to live
window       a reducer that keeps a sliding window in the state
tags         tags of messages and of runs
"""

from aforesaid.adapters._transcripts import open_manager
from aforesaid.adapters.langgraph.saver import AforesaidSaver
from aforesaid.adapters.langgraph.store import AforesaidStore
from aforesaid.adapters.langgraph.tags import messages_with, tagged, tags_of
from aforesaid.adapters.langgraph.window import WindowState, windowed

__all__ = [
    "AforesaidSaver",
    "AforesaidStore",
    "WindowState",
    "messages_with",
    "open_manager",
    "tagged",
    "tags_of",
    "windowed",
]
