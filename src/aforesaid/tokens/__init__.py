"""Tokens: what text and messages cost a model. Below: dialects, contracts. Above: stores, manager.

exact.py       counts as OpenAI's models do, offline
estimate.py    estimates for all others, corrected by what a provider reports
models.py      which of them a model needs
messages.py    what messages, a system prompt and tools cost
costs.py       the same for a message, counted once
words.py       counts of words that were met before
packed.py      the rank files under `ranks/`
"""

from aforesaid.tokens.costs import Uncounted, characters_in, costs_by, count, kept_by
from aforesaid.tokens.estimate import Estimator, RoughCounter, tokens_reported
from aforesaid.tokens.exact import ExactCounter
from aforesaid.tokens.messages import (
    PER_REQUEST,
    count_content,
    count_meaning,
    count_message,
    count_request,
    count_system,
    count_tools,
)
from aforesaid.tokens.models import counter_for, counter_named, default_counter, encoding_for, is_ready, ready

__all__ = [
    "PER_REQUEST",
    "Estimator",
    "ExactCounter",
    "RoughCounter",
    "Uncounted",
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
    "kept_by",
    "ready",
    "tokens_reported",
]
