"""Compare names by folded letters, sound, consonants and edit distance.

`sound` unites spellings with the same pronunciation in several European languages (Meier, Mayer; Stephan,
Stefan). `skeleton` is coarser, for misheard words. `similarity` combines both with the edit distance.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache

from aforesaid._internal.combining_marks import marks

_LETTERS = str.maketrans(
    {"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ŋ": "n"}
)
_GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")

EXACT = 1.0
HOMOPHONE = 0.95
"""Grade of different spellings with the same sound."""


@lru_cache(maxsize=50_000)
def folded(word: str) -> str:
    """Return the word in lower case without accents, apostrophes and hyphens."""
    small = word.casefold().translate(_LETTERS)
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", small) if not _is_mark(letter))
    kept = _NOT_ALPHANUMERIC.sub("", plain)
    return kept if kept or not plain.strip("'’-.") else small  # other alphabets stay as they are


def _is_mark(letter: str) -> bool:
    return unicodedata.combining(letter) != 0


def composed(text: str) -> str:
    """Return the text with precomposed letters; some sources store accents separately."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def word_finder(*, letter: str, joints: str) -> Callable[[str], re.Pattern[str]]:
    """Return a function that returns the word pattern for a text.

    Python's word class excludes the vowel signs of Hindi or Tamil, so combining marks and joiners are added;
    otherwise names would be cut into single letters.
    """

    def pattern(one: str) -> re.Pattern[str]:
        return re.compile(f"{one}+(?:[{joints}]{one}+)*")

    plain = pattern(letter)
    marked = cache(lambda: pattern(f"(?:{letter}[{marks()}{_JOINERS}]*)"))
    return lambda text: plain if text.isascii() else marked()


# Zero-width joiners are part of words in Persian and Indic scripts.
_JOINERS = "\u200c\u200d"


def spellings(word: str) -> tuple[str, ...]:
    """Return the folded forms of a word: Müller is written Muller or Mueller."""
    german = folded(word.casefold().translate(_GERMAN))
    plain = folded(word)
    return (plain,) if german == plain else (plain, german)


# The order matters: later rules see the result of earlier ones, such as S for sch.
_SOUNDS = tuple(
    (re.compile(pattern), into)
    for pattern, into in (
        # MacDonald, McDonald
        (r"^(?:mac|mc)(?=.)", "mk"),
        (r"^kn", "n"),
        (r"^wr", "r"),
        (r"^ps", "s"),
        (r"sch|sh", "S"),
        (r"ts?ch|ch(?=[eiy])", "C"),
        (r"ph", "f"),
        (r"gh|kh|ch|ck|q", "k"),
        (r"c(?=[eiy])", "s"),
        (r"c", "k"),
        (r"x", "ks"),
        (r"tz|ts|z", "s"),
        (r"dt\b|th|tt|d$", "t"),
        (r"mps", "ms"),
        (r"w", "v"),
        (r"j(?=[aeou])", "y"),
        (r"ae", "e"),
        (r"oe", "o"),
        (r"ue", "u"),
        # Meier, Maier, Meyer, Mayer
        (r"ei|ai|ey|ay|eye", "A"),
        # harbour, harbor
        (r"(?:ou|[aeou])r$", "er"),
        (r"au|ow|ou", "U"),
        (r"ie|ee|ea|y|j", "i"),
        (r"oo", "u"),
        (r"(?<=[aeiouAU])h", ""),
        (r"(?<=.{3})e$", ""),
        (r"(.)\1+", r"\1"),
    )
)


@lru_cache(maxsize=50_000)
def sound(word: str) -> str:
    """Return the sound of a folded word; homophones have the same."""
    for pattern, into in _SOUNDS:
        word = pattern.sub(into, word)
    return word


_SKELETON = str.maketrans("bdgqzvSC", "ptkksfss", "aeiouyhwAU")


@lru_cache(maxsize=50_000)
def skeleton(word: str) -> str:
    """Return the consonants of a folded word, with easily confused ones merged."""
    sounded = sound(word)
    bare = re.sub(r"(.)\1+", r"\1", sounded.translate(_SKELETON))
    # A leading vowel distinguishes Erin from Rin.
    return f"a{bare}" if sounded[:1] in "aeiouAUy" else bare


def distance(one: str, other: str, *, most: int) -> int:
    """Return the Damerau-Levenshtein distance, or `most` + 1 if it is larger than `most`."""
    # Every difference in length is at least one edit.
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        older, before, row = before, row, [at]
        for to, its in enumerate(other, 1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != its))
            # Two swapped letters count as one edit: the most common slip in typing.
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == its:
                cost = min(cost, older[to - 2] + 1)
            row.append(cost)
        # No cell of later rows can be smaller: stop early.
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def similarity(word: str, name: str) -> float:
    """Return how similar a word is to a name: 1 same letters, 0.95 same sound, 0 different."""
    if word == name:
        return EXACT
    longest = max(len(word), len(name))
    # In two letters, any edit gives another name.
    if longest < 3:
        return 0.0
    if sound(word) == sound(name):
        return HOMOPHONE
    edits = distance(word, name, most=3)
    same_skeleton = skeleton(word) == skeleton(name)
    return _grade(edits, longest, same_skeleton=same_skeleton, same_start=word[0] == name[0])


def _grade(edits: int, longest: int, *, same_skeleton: bool, same_start: bool) -> float:
    """Return a grade from 0.92 (one edit in a long word with the same skeleton) to 0 (too many edits)."""
    grade = 0.0
    if same_skeleton:
        grade = {1: 0.92 if longest >= 5 else 0.8, 2: 0.88 if longest >= 6 else 0.0}.get(edits, 0.0)
        if edits == 3 and longest >= 9:
            grade = 0.82
    elif edits == 1 and longest >= 5:
        grade = 0.87
    elif edits == 2 and longest >= 8:
        grade = 0.83
    return max(0.0, grade if same_start else grade - 0.06)


def near_keys(word: str) -> set[str]:
    """Return keys shared with every word one edit away: the word, and the word without one letter."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}
