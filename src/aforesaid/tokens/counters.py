"""Estimate tokens for models without a public tokenizer, and choose the counter for a model."""

import asyncio
import logging
import math
import re
import threading
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.contracts import TokenCounter
from aforesaid.errors import AforesaidError, InvalidInput, MissingExtra, shown
from aforesaid.tokens.exact import COUNTING_EXACTLY, ENCODINGS, EncodingName, ExactCounter
from aforesaid.tokens.families import GENERAL, NAMES, Family, family_of, joined_digits, words_in_capitals

# Estimate tokens for models without a public tokenizer, such as Claude 3 and later, and Gemini.
#
# Their counts are near those of `o200k_base`, more often above than below; for Chinese and emoji
# `o200k_base` misses a third. An estimate is therefore the `o200k_base` count with a margin by script, whose
# size depends on the family of the model (`families`). A budget based on it is rarely exceeded, and up to a
# third stays unused until `calibrate` has processed reports of the provider.
#
# Without tiktoken the base is a count by characters (`RoughCounter`), which adds its own error.


# Bounds of the correction. A report beyond them belongs to a different request.
LOWEST, HIGHEST = 0.5, 3.0
# The most that a provider adds to tool definitions.
MAX_TOOLS_OVERHEAD = 4000
# Minimum weight of a new report: about the last dozen dominate, so that a change of model takes effect.
MIN_REPORT_WEIGHT = 0.2

# Letters beyond Latin and its accents, and all signs but general punctuation.
_OTHER_SCRIPTS = "[^\x00-\u024f\u1e00-\u206f]+"


class MarginCounter:
    """Another counter's count with a margin by script. It does not learn."""

    def __init__(self, base: TokenCounter, family: Family = GENERAL) -> None:
        self._base = base
        self.family = family
        named = f"estimate_{family.name}" if family.name else "estimate"
        self.name = named if base.name == "o200k_base" else f"{named}_by_{base.name}"

    def count_text(self, text: str) -> int:
        """Return the estimated number of tokens."""
        return math.ceil(self.measure(text))

    def measure(self, text: str) -> float:
        """Return the estimate without rounding."""
        family, total = self.family, self._base.count_text(text)
        added = family.digit * joined_digits(text) if family.digit else 0.0
        added += family.capitals * words_in_capitals(text) if family.capitals else 0.0
        if text.isascii():
            return total * family.latin + added
        others = min(total, self._base.count_text("".join(re.findall(_OTHER_SCRIPTS, text))))
        return (total - others) * family.latin + others * family.other + added


class Estimator:
    """Estimates tokens and learns from a provider's reports.

    Its name includes the correction: equal names mean equal counts. Counts stored with messages come from
    `uncorrected`, so they stay valid when the correction changes.
    """

    def __init__(
        self, base: TokenCounter | None = None, *, correction: float = 1.0, family: Family = GENERAL
    ) -> None:
        self._base = base or default_base()
        self.family = family
        self.uncorrected = MarginCounter(self._base, family)
        self._correction = float(_within_bounds(correction))
        self._reports = 0
        # What a provider adds to tool definitions beyond the values of the model's family.
        self.tools_overhead = 0
        self._tools_reports = 0
        self._learning = threading.Lock()

    def __repr__(self) -> str:
        return f"Estimator(base={self._base.name!r}, correction={self.correction})"

    @property
    def name(self) -> str:
        plain = self.uncorrected.name
        return plain if self.correction == 1.0 else f"{plain}@{self.correction:.2f}"

    @property
    def base(self) -> TokenCounter:
        """The counter that the estimate is based on."""
        return self._base

    @property
    def correction(self) -> float:
        """The factor applied to estimates, rounded to two digits; 1.0 before the first report."""
        return round(self._correction, 2)

    def count_text(self, text: str) -> int:
        """Return the estimated number of tokens."""
        return math.ceil(self.uncorrected.measure(text) * self.correction)

    def corrected(self, tokens: int) -> int:
        """Apply the current correction to a count by `uncorrected`."""
        return math.ceil(tokens * self.correction)

    def calibrate(
        self, *, estimated: int, reported: Any, correction: float | None = None, tools: int = 0
    ) -> float:
        """Learn from one request: its estimate and the provider's report.

        `reported` is a number of tokens, or a provider's usage as mapping or object. `correction` is the
        one used for `estimated`, if it has changed since. `tools` are the tokens of tool definitions in the
        estimate: where they are most of it, the difference is what the provider adds to them, and the
        factor stays. Return the new correction: at first the mean of all reports, later a running mean,
        always between 0.5 and 3.0.
        """
        counted = _positive(estimated, "estimated")
        actual = _positive(tokens_reported(reported), "reported")
        with self._learning:
            used = self.correction if correction is None else _within_bounds(correction)
            if 2 * tools >= counted:
                self._tools_reports += 1
                weight = max(1 / self._tools_reports, MIN_REPORT_WEIGHT)
                difference = min(max(actual - counted, -tools), MAX_TOOLS_OVERHEAD)
                self.tools_overhead += round(weight * difference)
                return self.correction
            observed = min(max(used * actual / counted, LOWEST), HIGHEST)
            self._reports += 1
            weight = max(1 / self._reports, MIN_REPORT_WEIGHT)
            self._correction += weight * (observed - self._correction)
        return self.correction


class RoughCounter:
    """Counts by characters, as a substitute for `o200k_base` without tiktoken.

    Each character has a cost by script, and ASCII by kind. Prose, source code and JSON come out between a
    tenth below `o200k_base` and a third above. Random letters (keys, base64) have up to twice the tokens
    counted here.
    """

    name = "characters"

    def count_text(self, text: str) -> int:
        """Return the approximate number of tokens."""
        if not isinstance(text, str):
            raise InvalidInput(f"only text has tokens; got {shown(text)}", field="text", value=text)
        kinds = _COSTS[:_ASCII_KINDS] if text.isascii() else _COSTS
        return math.ceil(sum([cost * len(re.findall(kind, text)) for kind, cost in kinds]))


# Tokens per match. The patterns do not overlap and skip only single blanks, which belong to the following
# word. `re` compiles them on first use, which keeps the import fast.
_COSTS = (
    ("[A-Za-z]{1,7}", 1.0),
    ("[0-9]{1,3}", 1.0),
    (r"[^\sA-Za-z0-9\x80-\U0010ffff]{1,2}", 1.0),
    (r"[\r\n]+[ \t]*|[ \t]{2,}", 1.0),
    ("[\x80-\u036f]", 0.5),
    ("[\u0370-\u058f]", 0.35),
    ("[\u0590-\u1fff]", 0.45),
    ("[\u2000-\uffff]", 0.9),
    ("[\U00010000-\U0010ffff]", 1.7),
)
_ASCII_KINDS = 4


def default_base() -> TokenCounter:
    """Return the base of estimates: `o200k_base` if tiktoken is installed, else a count by characters."""
    return ExactCounter("o200k_base") if find_spec("tiktoken") else RoughCounter()


def tokens_reported(usage: Any) -> int:
    """Return the input tokens of a request from a number or a provider's usage (mapping or object).

    Anthropic and Bedrock report cache writes and reads separately from the input tokens; OpenAI and Gemini
    include them.
    """
    if isinstance(usage, int | float):
        return _positive(usage, "reported")
    for name, cached in _USAGE_FIELDS:
        if (tokens := _field(usage, name)) is not None:
            return _positive(tokens + sum(_field(usage, each) or 0 for each in cached), "reported")
    raise InvalidInput(
        f"a usage has input_tokens or prompt_tokens; got {shown(usage)}", field="reported", value=usage
    )


# The number of input tokens, and what a provider reports separately from it.
_USAGE_FIELDS = (
    ("input_tokens", ("cache_creation_input_tokens", "cache_read_input_tokens")),
    ("prompt_tokens", ("cache_creation_input_tokens", "cache_read_input_tokens")),
    ("prompt_token_count", ()),
    ("promptTokenCount", ()),
    ("inputTokens", ("cacheReadInputTokens", "cacheWriteInputTokens")),
)


def _field(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidInput(f"{name} must be a whole number; got {shown(value)}", field=name, value=value)
    return value


def _within_bounds(correction: Any) -> float:
    if isinstance(correction, int | float) and LOWEST <= correction <= HIGHEST:
        return correction
    raise InvalidInput(
        f"correction must lie between {LOWEST} and {HIGHEST}; got {shown(correction)}",
        field="correction",
        value=correction,
    )


def _positive(tokens: Any, field: str) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise InvalidInput(
            f"{field} must be a number of tokens above zero; got {shown(tokens)}", field=field, value=tokens
        )
    return tokens


# Choose the counter for a model.


# These patterns repeat tiktoken's table (a test compares them) and add missing names: names without a date
# and fine-tuned models of later families. Using the table itself would import tiktoken.
_O200K = lazy_pattern(r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|gpt-oss|o[134](?![^-:]))")
_CL100K = lazy_pattern(r"(ft:)?(gpt-4(?![^-:])|gpt-3\.?5|(davinci|babbage)-002)|text-embedding-(ada-002|3-)")

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

# Tokens of a request without a known model. With fewer, the prompt cache of a long tool loop serves less than
# 80 % of the prompt (benchmarks/prompt_cache.py).
DEFAULT_BUDGET = 8_000
# Tokens of a request to a model with a larger window: longer requests cost more and answer no better.
LARGEST_BUDGET = 96_000

log = logging.getLogger("aforesaid.tokens")

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
        return Estimator(family=family_of(model))
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
    match = _ESTIMATE.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise InvalidInput.not_in("counter", name, (*_exact, "estimate", "estimate@1.25"))
    family = NAMES[match[1]] if match[1] else GENERAL
    return Estimator(correction=float(match[2] or 1), family=family)


_ESTIMATE = lazy_pattern(rf"estimate(?:_({'|'.join(NAMES)}))?(?:@(\d\.\d\d))?", re.ASCII)


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


def is_slow_to_load(counter: TokenCounter) -> bool:
    """Return whether the counter's tables are not loaded yet: 0.2 s, part of it without releasing the
    interpreter lock.
    """
    if counter in _ready or counter in _broken:
        return False
    base = counter.base if isinstance(counter, Estimator) else counter
    return isinstance(base, ExactCounter) and not base.is_loaded


def load_later(counter: TokenCounter) -> None:
    """Load the counter soon, on a thread of its own, once. `is_ready` is true afterwards."""
    with _starting:
        if counter in _ready or counter in _broken or counter in _loading:
            return
        _loading.add(counter)
    # Part of the load holds the interpreter lock. It must not hold up the first turns of a process, and a
    # process that ends soon does not need it.
    timer = threading.Timer(_QUIET_SECONDS, _load, args=(counter,))
    timer.name, timer.daemon = "aforesaid-tokens", True
    timer.start()


def _load(counter: TokenCounter) -> None:
    try:
        counter.count_text("")
    except AforesaidError as error:
        _broken[counter] = error
        log.warning("messages are not counted: %s", error)
    else:
        _ready.add(counter)
    _loading.discard(counter)


_QUIET_SECONDS = 1.0
_loading: WeakSet[TokenCounter] = WeakSet()
_starting = threading.Lock()


# Shared; it must not be calibrated, because no model was named.
_estimate = Estimator(RoughCounter())


def quick_counter() -> TokenCounter:
    """Return an estimate from above that needs no tables, for the time until they are loaded."""
    return _estimate.uncorrected


def default_counter() -> TokenCounter:
    """Return the counter for an unspecified model: exact if tiktoken is installed, else an estimate."""
    return _exact["o200k_base"] if find_spec("tiktoken") else _estimate
