"""Windows: the part of a log that a model receives, always a request that a provider accepts.

tool_pairs    matches tool results with calls
groups        entries → atomic groups
policies      limits and filters
cut           the size of a window from any start; where to start so that the prefix stays stable
selection     groups and policy → included groups, and the others with reasons
truncation    shortens tool results
build         entries and policy → `Context`
report        what was left out and why, and a window in numbers
reader        the same from a store, reading backwards
request       a context → a provider request
sliding       one conversation's window in numbers, evicted message by message
"""

from aforesaid.windows.build import build_window
from aforesaid.windows.groups import EPHEMERAL, IMPORTANT, INTERRUPTED
from aforesaid.windows.policies import WindowPolicy
from aforesaid.windows.reader import (
    LogEnds,
    ReadSizes,
    TokenEstimates,
    initial_read_sizes,
    messages_of,
    pending_window,
    read_ends,
    read_window,
    readable,
    with_latest,
)
from aforesaid.windows.report import stats_of
from aforesaid.windows.request import (
    AnthropicModelRequest,
    AnthropicRequest,
    BedrockModelRequest,
    BedrockRequest,
    GeminiModelRequest,
    GeminiRequest,
    MessagesModelRequest,
    MessagesRequest,
    RequestOptions,
    RequestParts,
    ResponsesModelRequest,
    ResponsesRequest,
    write_request,
)

__all__ = [
    "EPHEMERAL",
    "IMPORTANT",
    "INTERRUPTED",
    "AnthropicModelRequest",
    "AnthropicRequest",
    "BedrockModelRequest",
    "BedrockRequest",
    "GeminiModelRequest",
    "GeminiRequest",
    "LogEnds",
    "MessagesModelRequest",
    "MessagesRequest",
    "ReadSizes",
    "RequestOptions",
    "RequestParts",
    "ResponsesModelRequest",
    "ResponsesRequest",
    "TokenEstimates",
    "WindowPolicy",
    "build_window",
    "initial_read_sizes",
    "messages_of",
    "pending_window",
    "read_ends",
    "read_window",
    "readable",
    "stats_of",
    "with_latest",
    "write_request",
]
