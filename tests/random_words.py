"""Random words, and a search for them in raw bytes that takes as long for a thousand words as for one."""

import random
import re
import string
from collections.abc import Iterable

LENGTH = 12
SHARED = 4
"""Letters that two random words hardly ever have in common at their beginnings. An index may store a word
without the letters that it shares with the word before it, so only the rest of a word is searched for."""
TAIL = LENGTH - SHARED
_RUNS = re.compile(rb"[a-z]{%d,}" % TAIL)


def random_word(chance: random.Random) -> str:
    return "".join(chance.choices(string.ascii_lowercase, k=LENGTH))


def words_in(content: bytes, words: Iterable[str]) -> set[str]:
    """Return the words whose last letters occur anywhere in the content."""
    wanted = {word[SHARED:].encode(): word for word in words}
    tails = {run[at : at + TAIL] for run in _RUNS.findall(content) for at in range(len(run) - TAIL + 1)}
    return {wanted[tail] for tail in wanted.keys() & tails}
