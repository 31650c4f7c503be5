"""Word lists that distinguish names from other words, in English, German, French, Spanish and Dutch.

All words are folded: lower case, without accents. Written for this project from general knowledge.
"""


def words(text: str) -> frozenset[str]:
    """Return the words of a list, separated by whitespace."""
    return frozenset(text.split())
