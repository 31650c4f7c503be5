"""Find whether an answer quotes what a search found. Pure functions."""

from collections.abc import Iterable, Iterator

from aforesaid.search.analysis import terms_of

# Consecutive content words that a quotation shares with its source; a shorter source is repeated whole.
LEAST_RUN = 4


def is_quoted(sources: Iterable[str], answer: str) -> bool:
    """Return whether the answer repeats a run of content words of a source."""
    said = terms_of(answer)
    return any(_shares_run(terms_of(source), said) for source in sources)


def _shares_run(source: list[str], said: list[str]) -> bool:
    length = min(LEAST_RUN, len(source))
    return length > 0 and not set(_runs(source, length)).isdisjoint(_runs(said, length))


def _runs(terms: list[str], length: int) -> Iterator[tuple[str, ...]]:
    return (tuple(terms[at : at + length]) for at in range(len(terms) - length + 1))
