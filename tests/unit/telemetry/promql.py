"""Which metrics and labels an expression of PromQL names: a small tokenizer, and no more than that."""

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s+|(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<range>\[[^\]]*\])"""
    r"""|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?[smhdwy]?)"""
    r"""|(?P<operator>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])""",
    re.VERBOSE,
)
FUNCTIONS = frozenset(
    {"rate", "irate", "increase", "sum", "max", "min", "avg", "count", "histogram_quantile", "time", "absent"}
)
GROUPING = frozenset(["by", "without", "on", "ignoring", "group_left", "group_right"])
WORDS = frozenset(["and", "or", "unless", "bool", "offset"])


class Named(NamedTuple):
    """What an expression names."""

    metrics: frozenset[str]
    matched: frozenset[tuple[str, str, str]]
    """Metric, label, and the value or pattern that it is matched with."""
    grouped: frozenset[str]
    """Labels that are grouped by."""


def tokens(expression: str) -> list[tuple[str, str]]:
    """Kinds and texts; what is no PromQL is an error."""
    found, at = [], 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ValueError(f"no PromQL at {expression[at : at + 20]!r}")
        at = match.end()
        if match.lastgroup is not None:
            found.append((match.lastgroup, match.group()))
    return found


def named_in(expression: str) -> Named:
    """The metrics and labels in an expression. Raises `ValueError` for an unknown function."""
    metrics: set[str] = set()
    matched: set[tuple[str, str, str]] = set()
    grouped: set[str] = set()
    stream = tokens(expression)
    at = 0
    while at < len(stream):
        kind, text = stream[at]
        following = stream[at + 1][1] if at + 1 < len(stream) else ""
        at += 1
        if kind != "name" or text in WORDS:
            continue
        if text in GROUPING:
            at, labels = _listed(stream, at)
            grouped |= labels
        elif following == "(" or text in FUNCTIONS:
            if text not in FUNCTIONS:
                raise ValueError(f"there is no function {text}")
        else:
            metrics.add(text)
            if following == "{":
                at, pairs = _matchers(stream, at)
                matched |= {(text, label, value) for label, value in pairs}
    return Named(frozenset(metrics), frozenset(matched), frozenset(grouped))


def _listed(stream: list[tuple[str, str]], at: int) -> tuple[int, set[str]]:
    """The labels in parentheses behind `by` and its like."""
    if stream[at][1] != "(":
        raise ValueError("labels are listed in parentheses")
    end = next(place for place in range(at, len(stream)) if stream[place][1] == ")")
    return end + 1, {text for kind, text in stream[at:end] if kind == "name"}


def _matchers(stream: list[tuple[str, str]], at: int) -> tuple[int, set[tuple[str, str]]]:
    end = next(place for place in range(at, len(stream)) if stream[place][1] == "}")
    inside = stream[at + 1 : end]
    return end + 1, {
        (inside[place][1], inside[place + 2][1][1:-1])
        for place in range(len(inside))
        if inside[place][0] == "name"
    }
