"""Windows: the part of a log that a model receives, always a request that a provider accepts.

matching    which tool result answers which call
grouping    entries → atomic groups
policies    what a window may hold
lines, cut  what a window costs from any start; where to start so that its front stays
choosing    groups + policy → what is kept, what is left out and why
shortening  tool results made to fit
building    entries + policy → Context with its report
reading     the same from a store, in tails
sending     a context as a request, where it is one
stats       a window in numbers
"""

from aforesaid.windows.build import build_window
from aforesaid.windows.groups import EPHEMERAL, IMPORTANT, INTERRUPTED
from aforesaid.windows.policies import WindowPolicy
from aforesaid.windows.reader import (
    Ends,
    Experience,
    FirstLook,
    first_look,
    read_ends,
    read_window,
    window_of_pending,
)
from aforesaid.windows.request import write_request
from aforesaid.windows.stats import stats_of

__all__ = [
    "EPHEMERAL",
    "IMPORTANT",
    "INTERRUPTED",
    "Ends",
    "Experience",
    "FirstLook",
    "WindowPolicy",
    "build_window",
    "first_look",
    "read_ends",
    "read_window",
    "stats_of",
    "window_of_pending",
    "write_request",
]
