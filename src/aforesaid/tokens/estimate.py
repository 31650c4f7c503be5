"""Estimate tokens for models without a public tokenizer, such as Claude 3 and later, and Gemini.

Their counts are near those of `o200k_base`, more often above than below; for Chinese and emoji
`o200k_base` misses a third. An estimate is therefore the `o200k_base` count with a margin by script: 1.2
for Latin script and code, 1.5 for all others. A budget based on it is rarely exceeded, and up to a third
stays unused until `calibrate` has processed reports of the provider.

Without tiktoken the base is a count by characters (`RoughCounter`), which adds its own error.
"""

import math
import re
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from aforesaid.contracts import TokenCounter
from aforesaid.errors import InvalidInput, shown
from aforesaid.tokens.exact import ExactCounter

LATIN_MARGIN = 1.2
OTHER_MARGIN = 1.5
LOWEST, HIGHEST = 0.5, 3.0
"""Bounds of the correction. A report beyond them belongs to a different request."""
MIN_REPORT_WEIGHT = 0.2
"""Minimum weight of a new report: about the last dozen dominate, so that a change of model takes effect."""

# Letters beyond Latin and its accents, and all signs but general punctuation.
_OTHER_SCRIPTS = "[^\x00-\u024f\u1e00-\u206f]+"


class MarginCounter:
    """Another counter's count with a margin by script. It does not learn."""

    def __init__(self, base: TokenCounter) -> None:
        self._base = base
        self.name = "estimate" if base.name == "o200k_base" else f"estimate_by_{base.name}"

    def count_text(self, text: str) -> int:
        """Return the estimated number of tokens."""
        return math.ceil(self.measure(text))

    def measure(self, text: str) -> float:
        """Return the estimate without rounding."""
        total = self._base.count_text(text)
        if text.isascii():
            return total * LATIN_MARGIN
        others = min(total, self._base.count_text("".join(re.findall(_OTHER_SCRIPTS, text))))
        return (total - others) * LATIN_MARGIN + others * OTHER_MARGIN


class Estimator:
    """Estimates tokens and learns from a provider's reports.

    Its name includes the correction: equal names mean equal counts. Counts stored with messages come from
    `uncorrected`, so they stay valid when the correction changes.
    """

    def __init__(self, base: TokenCounter | None = None, *, correction: float = 1.0) -> None:
        self._base = base or default_base()
        self.uncorrected = MarginCounter(self._base)
        self._correction = float(_within_bounds(correction))
        self._reports = 0
        self._learning = threading.Lock()

    def __repr__(self) -> str:
        return f"Estimator(base={self._base.name!r}, correction={self.correction})"

    @property
    def name(self) -> str:
        plain = self.uncorrected.name
        return plain if self.correction == 1.0 else f"{plain}@{self.correction:.2f}"

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

    def calibrate(self, *, estimated: int, reported: Any, correction: float | None = None) -> float:
        """Learn from one request: its estimate and the provider's report.

        `reported` is a number of tokens, or a provider's usage as mapping or object. `correction` is the
        one used for `estimated`, if it has changed since. Return the new correction: at first the mean of
        all reports, later a running mean, always between 0.5 and 3.0.
        """
        ratio = _positive(tokens_reported(reported), "reported") / _positive(estimated, "estimated")
        with self._learning:
            used = self.correction if correction is None else _within_bounds(correction)
            observed = min(max(used * ratio, LOWEST), HIGHEST)
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

    Anthropic reports cache writes and reads separately from `input_tokens`; OpenAI includes them.
    """
    if isinstance(usage, int | float):
        return _positive(usage, "reported")
    for field in ("input_tokens", "prompt_tokens"):
        if (tokens := _field(usage, field)) is not None:
            cached = (_field(usage, f"cache_{kind}_input_tokens") or 0 for kind in ("creation", "read"))
            return _positive(tokens + sum(cached), "reported")
    raise InvalidInput(
        f"a usage has input_tokens or prompt_tokens; got {shown(usage)}", field="reported", value=usage
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
