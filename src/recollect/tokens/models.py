"""Which counter a model needs. Below: `exact`, `estimate`. Above: settings, manager."""

import asyncio
import re
from importlib.util import find_spec
from weakref import WeakSet

from recollect.contracts import TokenCounter
from recollect.errors import InvalidInput, shown
from recollect.tokens.estimate import Estimator
from recollect.tokens.exact import ENCODINGS, EncodingName, ExactCounter, require_tiktoken

# What tiktoken's own table lacks or has wrong: names without a date, fine-tuned models of later families.
_O200K = re.compile(r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|o[134](?![^-:]))")
_CL100K = re.compile(r"(ft:)?(gpt-4(?![^-:])|gpt-3\.?5)")

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
    require_tiktoken()
    return _exact[encoding]


def encoding_for(model: str) -> EncodingName | None:
    """The encoding that a model counts with; None where it is not known."""
    name = model.strip().lower().rpartition("/")[2]
    if name in _exact:
        return name
    if _O200K.match(name):
        return "o200k_base"
    if _CL100K.match(name):
        return "cl100k_base"
    return _known_to_tiktoken(name)


_ready: WeakSet[TokenCounter] = WeakSet()


async def ready(counter: TokenCounter) -> None:
    """Load what the counter needs, away from the event loop, so that counting never holds it up."""
    if counter not in _ready:
        await asyncio.to_thread(counter.count_text, "")
        _ready.add(counter)


def default_counter() -> TokenCounter:
    """The counter for a model that nobody named: exact where it can be, else an estimate."""
    return _exact["o200k_base"] if find_spec("tiktoken") else Estimator()


def _known_to_tiktoken(name: str) -> EncodingName | None:
    if not find_spec("tiktoken"):
        return None
    from tiktoken.model import encoding_name_for_model

    try:
        known = encoding_name_for_model(name)
    except KeyError:
        return None
    return next((encoding for encoding in ENCODINGS if encoding == known), None)
