"""Choose the counter for a model."""

import asyncio
import re
from functools import lru_cache
from importlib.util import find_spec
from weakref import WeakKeyDictionary, WeakSet

from aforesaid.contracts import TokenCounter
from aforesaid.errors import AforesaidError, InvalidInput, MissingExtra, shown
from aforesaid.tokens.estimate import Estimator, RoughCounter
from aforesaid.tokens.exact import COUNTING_EXACTLY, ENCODINGS, EncodingName, ExactCounter

# These patterns repeat tiktoken's table (a test compares them) and add missing names: names without a date
# and fine-tuned models of later families. Using the table itself would import tiktoken.
_O200K = re.compile(r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|o[134](?![^-:]))")
_CL100K = re.compile(r"(ft:)?(gpt-4(?![^-:])|gpt-3\.?5|(davinci|babbage)-002)|text-embedding-(ada-002|3-)")

# The context windows of models: the first match applies. Strings, because `re` compiles on first use and the
# import stays fast.
_WINDOWS = (
    (r"(ft:)?gpt-4\.1", 1_047_576),
    (r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.5|gpt-4-(turbo|0125|1106)|gpt-oss|o1-(mini|preview))", 128_000),
    (r"(ft:)?gpt-4-32k", 32_768),
    (r"(ft:)?gpt-4", 8_192),
    (r"(ft:)?gpt-[5-9]", 400_000),
    (r"(ft:)?gpt-3\.?5", 16_385),
    (r"(ft:)?o[134](?![^-:])", 200_000),
    (r"([a-z]+\.)*claude-", 200_000),
    (r"gemini-", 1_048_576),
    (r"mistral-(large|medium|small)|llama-?[34]|qwen-?[23]|deepseek-", 128_000),
)

DEFAULT_BUDGET = 6_000
"""Tokens of a request without a known model: it leaves room for an answer in a window of 8,192 tokens."""
LARGEST_BUDGET = 96_000
"""Tokens of a request to a model with a larger window: longer requests cost more and answer no better."""

_exact: dict[EncodingName, ExactCounter] = {name: ExactCounter(name) for name in ENCODINGS}


def counter_for(model: str) -> TokenCounter:
    """Return the counter for a model or of that name: exact for OpenAI's models, else a new estimator.

    A name may include its provider, as in `openai/gpt-4o`. Exact counters are shared; each estimator is
    new, because it learns. Raise `MissingExtra` if an exact counter needs tiktoken.
    """
    if not isinstance(model, str) or not model.strip():
        raise InvalidInput(f"model must be a name; got {shown(model)}", field="model", value=model)
    encoding = encoding_for(model)
    if encoding is None:
        return Estimator()
    if not find_spec("tiktoken"):
        raise MissingExtra(COUNTING_EXACTLY, extra="tokens")
    return _exact[encoding]


@lru_cache(maxsize=256)
def counter_named(name: str) -> TokenCounter:
    """Return the counter with this name, as in a context report, to count on behalf of another process.

    The counter is shared and must not be calibrated: its correction is part of the name.
    """
    if name in _exact:
        return counter_for(name)
    match = _ESTIMATE(name) if isinstance(name, str) else None
    if match is None:
        raise InvalidInput.not_in("counter", name, (*_exact, "estimate", "estimate@1.25"))
    return Estimator(correction=float(match[1] or 1))


_ESTIMATE = re.compile(r"estimate(?:@(\d\.\d\d))?", re.ASCII).fullmatch


def encoding_for(model: str) -> EncodingName | None:
    """Return a model's encoding, or None if it is unknown."""
    name = model.strip().lower().rpartition("/")[2]
    if name in _exact:
        return name
    if _O200K.match(name):
        return "o200k_base"
    return "cl100k_base" if _CL100K.match(name) else None


def window_of(model: str) -> int | None:
    """Return the size of a model's context window in tokens, or None if it is unknown."""
    name = model.strip().lower().rpartition("/")[2]
    return next((size for pattern, size in _WINDOWS if re.match(pattern, name)), None)


def budget_for(model: str | None) -> int:
    """Return the token budget of a request: three quarters of the model's window, so that the answer fits.

    It is half of the window where tokens are estimated, because an estimate may be a third too low.
    """
    window = None if model is None else window_of(model)
    if model is None or window is None:
        return DEFAULT_BUDGET
    share = 0.5 if encoding_for(model) is None else 0.75
    return min(int(window * share), LARGEST_BUDGET)


_ready: WeakSet[TokenCounter] = WeakSet()
_broken: WeakKeyDictionary[TokenCounter, AforesaidError] = WeakKeyDictionary()


def is_ready(counter: TokenCounter) -> bool:
    """Return whether counting needs no further loading."""
    return counter in _ready


async def ready(counter: TokenCounter) -> None:
    """Load the counter on a thread, so that counting does not block the event loop.

    A failed load is not repeated: the same error is raised again immediately.
    """
    if counter in _ready:
        return
    if counter in _broken:
        raise _broken[counter]
    try:
        await asyncio.to_thread(counter.count_text, "")
    except AforesaidError as error:
        # Loading takes up to 0.3 s. A missing rank file stays missing while the process runs.
        _broken[counter] = error
        raise
    _ready.add(counter)


# Shared; it must not be calibrated, because no model was named.
_estimate = Estimator(RoughCounter())


def default_counter() -> TokenCounter:
    """Return the counter for an unspecified model: exact if tiktoken is installed, else an estimate."""
    return _exact["o200k_base"] if find_spec("tiktoken") else _estimate
