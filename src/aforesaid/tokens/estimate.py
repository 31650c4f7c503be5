"""Estimates for models whose tokenizer is not public. Below: `exact`, contracts. Above: `models`.

Claude 3 and later, Gemini and others publish no tokenizer. Their counts lie near those of
`o200k_base`, more often above than below, and for Chinese and emoji a third of their tokens is
missing there. So an estimate is the `o200k_base` count with a margin by script: 1.2 for Latin script
and code, 1.5 for all others. A budget kept by it is rarely overrun and up to a third is left unused,
until `calibrate` has seen what the provider reports.

Without tiktoken the base is a count by characters (`RoughCounter`); its own error comes on top.
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
"""The bounds of the correction: beyond them a report is about something else than what was estimated."""
MEMORY = 0.2
"""The least weight of a new report: the last dozen or so decide, so a change of model is followed."""

# Letters beyond Latin and its accents, and all signs but general punctuation.
_OTHER_SCRIPTS = "[^\x00-\u024f\u1e00-\u206f]+"


class WithMargin:
    """The count of another counter with a margin by script: an estimate that learns nothing."""

    def __init__(self, base: TokenCounter) -> None:
        self._base = base
        self.name = "estimate" if base.name == "o200k_base" else f"estimate_by_{base.name}"

    def count_text(self, text: str) -> int:
        """How many tokens the text may be."""
        return math.ceil(self.measure(text))

    def measure(self, text: str) -> float:
        """The same, not rounded."""
        total = self._base.count_text(text)
        if text.isascii():
            return total * LATIN_MARGIN
        others = min(total, self._base.count_text("".join(re.findall(_OTHER_SCRIPTS, text))))
        return (total - others) * LATIN_MARGIN + others * OTHER_MARGIN


class Estimator:
    """Estimates tokens, and learns from what a provider reports.

    Its name changes with the correction in use: the same name stands for the same counts. What is
    kept with a message is `uncorrected`, so that a count outlives what is learned later.
    """

    def __init__(self, base: TokenCounter | None = None, *, correction: float = 1.0) -> None:
        self._base = base or default_base()
        self.uncorrected = WithMargin(self._base)
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
        """What estimates are multiplied with, to two digits; 1.0 until there was a report."""
        return round(self._correction, 2)

    def count_text(self, text: str) -> int:
        """How many tokens the text may be."""
        return math.ceil(self.uncorrected.measure(text) * self.correction)

    def corrected(self, tokens: int) -> int:
        """What a count by `uncorrected` comes to with what was learned."""
        return math.ceil(tokens * self.correction)

    def calibrate(self, *, estimated: int, reported: Any, correction: float | None = None) -> float:
        """Learn from a request: what this estimator said of it, and what the provider reported.

        `reported` is a number of tokens, or a provider's usage, mapping or object. `estimated` was
        made with the present correction; say which, if another request was reported in between.
        Returns the correction from now on: at first the mean of all reports, later a running one,
        always between 0.5 and 3.0.
        """
        ratio = _positive(tokens_reported(reported), "reported") / _positive(estimated, "estimated")
        with self._learning:
            made_with = self.correction if correction is None else _within_bounds(correction)
            right = min(max(made_with * ratio, LOWEST), HIGHEST)
            self._reports += 1
            weight = max(1 / self._reports, MEMORY)
            self._correction += weight * (right - self._correction)
        return self.correction


class RoughCounter:
    """Counts by characters, where tiktoken is not installed: a stand-in for `o200k_base`.

    By script, which is to say by the bytes that a character has in UTF-8, and for ASCII by its kind.
    Prose, source code and JSON come out between a tenth below `o200k_base` and a third above it;
    random letters (keys, base64) have up to twice the tokens that are counted here.
    """

    name = "characters"

    def count_text(self, text: str) -> int:
        """About how many tokens the text is."""
        if not isinstance(text, str):
            raise InvalidInput(f"only text has tokens; got {shown(text)}", field="text", value=text)
        kinds = _COSTS[:_ASCII_KINDS] if text.isascii() else _COSTS
        return math.ceil(sum([cost * len(re.findall(kind, text)) for kind, cost in kinds]))


# How many tokens one match costs. The kinds do not overlap and leave out only single blanks, which
# are part of the word that follows. Compiled at their first use, so that importing stays light.
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
    """What estimates build on: `o200k_base` where tiktoken is installed, else a count by characters."""
    return ExactCounter("o200k_base") if find_spec("tiktoken") else RoughCounter()


def tokens_reported(usage: Any) -> int:
    """The tokens of a request, as a provider reports them: a number, or a usage, mapping or object.

    Anthropic counts what it wrote to its cache or read from there apart from `input_tokens`; OpenAI
    counts it in.
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
