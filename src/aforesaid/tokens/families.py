"""What a message costs in each family of models without a public tokenizer.

Providers publish no tokenizer for these models. The values were fitted on requests whose usage the provider
reported, and checked on requests of other projects. They are upper values: an estimate that is too low fails
a request, one that is too high leaves a part of the budget unused.
"""

import re

from msgspec import Struct

from aforesaid._internal.patterns import lazy_pattern


class Family(Struct, frozen=True, kw_only=True):
    """The costs of a family of models, relative to a count by `o200k_base`."""

    name: str = ""
    """Part of the counter's name: other costs need another name."""
    latin: float = 1.2
    """Factor for Latin script and code."""
    other: float = 1.5
    """Factor for all other scripts."""
    digit: float = 0.0
    """Added for each digit that `o200k_base` joins with others to one token."""
    capitals: float = 0.75
    """Added for each word of a text in capitals."""
    message: int = 3
    """Added to each message, with its role."""
    call: int = 28
    """Added to each tool call and to each result."""
    system: int = 2
    """Added to a system prompt."""
    signature: float = 0.0
    """Tokens per character of a thought's signature."""


# Claude up to 4.6, and models of unknown families.
GENERAL = Family()
# The first match applies.
_FAMILIES = (
    (
        lazy_pattern(r"([a-z]+\.)*claude-(opus-4-[7-9]|(opus|sonnet|haiku)-[5-9])"),
        Family(name="claude5", latin=1.45, other=1.8),
    ),
    (
        lazy_pattern(r"gemini-[12]"),
        Family(
            name="gemini2",
            latin=1.14,
            other=1.2,
            digit=1.0,
            capitals=0.0,
            message=1,
            call=4,
            system=1,
            signature=0.2,
        ),
    ),
    (
        lazy_pattern(r"gemini"),
        Family(
            name="gemini3",
            latin=1.14,
            other=1.2,
            digit=1.0,
            capitals=0.0,
            message=1,
            call=4,
            system=1,
            signature=0.21,
        ),
    ),
    (
        lazy_pattern(r"([a-z]+\.)*(amazon\.)?nova"),
        Family(name="nova", latin=1.25, other=1.5, digit=1.0, capitals=0.1, message=2, call=12),
    ),
)
NAMES = {family.name: family for _, family in _FAMILIES}

_DIGITS = r"[0-9]+"
_CAPITALS = r"[A-Z]{2,}"
_IN_CAPITALS = rf"{_CAPITALS}(?:[^A-Za-z0-9]{{1,3}}{_CAPITALS})+"
# `o200k_base` joins as many digits to one token.
_JOINED = 3


def family_of(model: str) -> Family:
    """Return the family of a model. A name may include its provider, as in `google/gemini-3-pro`."""
    name = model.strip().lower().rpartition("/")[2]
    return next((family for pattern, family in _FAMILIES if pattern.match(name)), GENERAL)


def words_in_capitals(text: str) -> int:
    """Return the number of words in capitals that stand next to each other, unlike an abbreviation."""
    return sum(len(re.findall(_CAPITALS, run)) for run in re.findall(_IN_CAPITALS, text))


def joined_digits(text: str) -> int:
    """Return how many tokens fewer the digits are than they have characters."""
    return sum(len(run) - -(-len(run) // _JOINED) for run in re.findall(_DIGITS, text))
