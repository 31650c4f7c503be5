"""Token counts of texts and messages.

exact        exact counts for OpenAI's models, offline
estimate     estimates for other models, corrected by a provider's reports
models       the counter for a model
families     what a message costs in a family of models
messages     counts of messages and system prompts
tools        counts of tool definitions, and what a provider adds to them
costs        a message's count, from the store or a cache
rank_files   the rank files under `ranks/`
"""

from aforesaid.tokens.counters import (
    Estimator,
    RoughCounter,
    budget_for,
    counter_for,
    counter_named,
    default_counter,
    encoding_for,
    is_ready,
    is_slow_to_load,
    load_later,
    quick_counter,
    ready,
    tokens_reported,
)
from aforesaid.tokens.exact import ExactCounter
from aforesaid.tokens.messages import (
    PER_REQUEST,
    NotCounted,
    characters_in,
    costs_by,
    count,
    count_content,
    count_meaning,
    count_message,
    count_request,
    count_system,
    storable_counter,
)
from aforesaid.tokens.tools import count_tools, names_of_tools

__all__ = [
    "PER_REQUEST",
    "Estimator",
    "ExactCounter",
    "NotCounted",
    "RoughCounter",
    "budget_for",
    "characters_in",
    "costs_by",
    "count",
    "count_content",
    "count_meaning",
    "count_message",
    "count_request",
    "count_system",
    "count_tools",
    "counter_for",
    "counter_named",
    "default_counter",
    "encoding_for",
    "is_ready",
    "is_slow_to_load",
    "load_later",
    "names_of_tools",
    "quick_counter",
    "ready",
    "storable_counter",
    "tokens_reported",
]
