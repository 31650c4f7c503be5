"""Which counter a model needs. Below: `exact`, `estimate`. Above: settings, manager."""

import asyncio
import re
from functools import lru_cache
from importlib.util import find_spec
from weakref import WeakKeyDictionary, WeakSet

from aforesaid.contracts import TokenCounter
from aforesaid.errors import AforesaidError, InvalidInput, MissingExtra, shown
from aforesaid.tokens.estimate import Estimator, RoughCounter
from aforesaid.tokens.exact import COUNTING_EXACTLY, ENCODINGS, EncodingName, ExactCounter

# As tiktoken's own table says, which a test compares, and what that lacks or has wrong: names without a
# date, fine-tuned models of later families. Asking the table itself would import tiktoken.
_O200K = re.compile(r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|o[134](?![^-:]))")
_CL100K = re.compile(r"(ft:)?(gpt-4(?![^-:])|gpt-3\.?5|(davinci|babbage)-002)|text-embedding-(ada-002|3-)")

_exact: dict[EncodingName, ExactCounter] = {name: ExactCounter(name) for name in ENCODINGS}


def counter_for(model: str) -> TokenCounter:
    """The counter for a model, or of that name: exact for OpenAI's models, else an estimator of its own.

    A name may have its provider in front, as in `openai/gpt-4o`. Exact counters are shared; each
    estimator is new, for it learns. Raises `MissingExtra` where an exact one needs tiktoken.
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
    """The counter that has this name, as an answer's report says it: for whoever counts for somebody else.

    It is shared, and nobody's to calibrate: what was learned is in the name.
    """
    if name in _exact:
        return counter_for(name)
    learned = _ESTIMATE(name) if isinstance(name, str) else None
    if learned is None:
        raise InvalidInput.not_in("counter", name, (*_exact, "estimate", "estimate@1.25"))
    return Estimator(correction=float(learned[1] or 1))


_ESTIMATE = re.compile(r"estimate(?:@(\d\.\d\d))?", re.ASCII).fullmatch


def encoding_for(model: str) -> EncodingName | None:
    """The encoding that a model counts with; None where it is not known."""
    name = model.strip().lower().rpartition("/")[2]
    if name in _exact:
        return name
    if _O200K.match(name):
        return "o200k_base"
    return "cl100k_base" if _CL100K.match(name) else None


_ready: WeakSet[TokenCounter] = WeakSet()
_broken: WeakKeyDictionary[TokenCounter, AforesaidError] = WeakKeyDictionary()


def is_ready(counter: TokenCounter) -> bool:
    """Whether counting would not have to load anything."""
    return counter in _ready


async def ready(counter: TokenCounter) -> None:
    """Load what the counter needs, away from the event loop, so that counting never holds it up.

    What could not be loaded is not tried again: the same error comes at once.
    """
    if counter in _ready:
        return
    if counter in _broken:
        raise _broken[counter]
    try:
        await asyncio.to_thread(counter.count_text, "")
    except AforesaidError as error:
        _broken[counter] = error
        raise
    _ready.add(counter)


_estimate = Estimator(RoughCounter())
"""Shared, for it is nobody's to calibrate: no model was named."""


def default_counter() -> TokenCounter:
    """The counter for a model that nobody named: exact where it can be, else an estimate."""
    return _exact["o200k_base"] if find_spec("tiktoken") else _estimate
