"""Numbers as people read them. Below: nothing."""

from collections.abc import Sequence


def span(seconds: float | None) -> str:
    """A time, with as many digits as matter."""
    if seconds is None:
        return ""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{three_digits(seconds * 1e3)} ms"
    return f"{three_digits(seconds)} s"


def size(count: float | None) -> str:
    """A number of bytes."""
    if count is None:
        return ""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{three_digits(count / factor)} {unit}"
    return f"{count:.0f} B"


def times(ratio: float | None) -> str:
    """How many times as much."""
    return "" if ratio is None else f"{three_digits(ratio)} ×"


def three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def many(count: float) -> str:
    """A large count."""
    for unit, factor in (("billion", 1e9), ("million", 1e6)):
        if count >= factor:
            return f"{three_digits(count / factor)} {unit}"
    return f"{count:,.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown: the first column on the left, numbers on the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))
