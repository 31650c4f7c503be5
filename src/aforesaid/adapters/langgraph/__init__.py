"""LangGraph: a checkpoint saver, a store, and a window as state.

saver      `AforesaidSaver`: checkpoints, with messages in the log
values     channel values: references into the log, or serialized bytes
store      `AforesaidStore`: `BaseStore` with search and time to live
window     a reducer that keeps a valid window in the state
"""

from aforesaid.adapters._transcripts import open_manager
from aforesaid.adapters.langgraph.saver import AforesaidSaver
from aforesaid.adapters.langgraph.store import AforesaidStore
from aforesaid.adapters.langgraph.window import windowed

__all__ = ["AforesaidSaver", "AforesaidStore", "open_manager", "windowed"]
