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
