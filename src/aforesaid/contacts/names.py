"""Parse a contact's names into words with their parts, and compare them by letters, sound and distance."""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Literal

from msgspec import Struct

from aforesaid.contacts import word_lists
from aforesaid.model.contacts import Contact
from aforesaid.search.analysis import marks

# Compare names by folded letters, sound, consonants and edit distance.
#
# `sound` unites spellings with the same pronunciation in several European languages (Meier, Mayer; Stephan,
# Stefan). `skeleton` is coarser, for misheard words. `similarity` combines both with the edit distance.


_LETTERS = str.maketrans(
    {"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ŋ": "n"}
)
_GERMAN = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")

EXACT = 1.0
# Grade of different spellings with the same sound.
HOMOPHONE = 0.95
# Grade of spellings with the same sound in different languages.
SAME_READING = 0.9


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


# The same letters are pronounced differently in English and Italian: Finch, Bianchi, Lucia, Giuseppe.
_READINGS = tuple(
    tuple((re.compile(pattern), into) for pattern, into in rules)
    for rules in (
        ((r"tsch|tch|ch", "C"), (r"dsch|dg|j|g(?=[eiy])", "J"), (r"(?<=[CJ])i(?=[aou])", "")),
        (
            (r"ch", "k"),
            (r"gh", "g"),
            (r"c(?=[ei])", "C"),
            (r"g(?=[ei])", "J"),
            (r"(?<=[CJ])i(?=[aou])", ""),
            (r"gn", "n"),
            (r"gl(?=i)", "l"),
        ),
    )
)


@lru_cache(maxsize=50_000)
def readings(word: str) -> tuple[str, ...]:
    """Return the sounds of a folded word as speakers of several languages read it."""
    found = {sound(word)}
    for rules in _READINGS:
        read = word
        for pattern, into in rules:
            read = pattern.sub(into, read)
        if read != word:
            found.add(sound(read))
    return tuple(found)


_SKELETON = str.maketrans("bdgqzvSCJ", "ptkksfsss", "aeiouyhwAU")


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
    if not set(readings(word)).isdisjoint(readings(name)):
        return SAME_READING
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


def singulars(word: str) -> tuple[str, ...]:
    """Return what a folded word may be the plural or the German genitive of: finches, müllers."""
    if len(word) < 5 or not word.endswith("s"):
        return ()
    return (word[:-1], word[:-2]) if word.endswith("es") else (word[:-1],)


def near_keys(word: str) -> set[str]:
    """Return keys shared with every word one edit away: the word, and the word without one letter."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


# Parse a contact's names into words with their parts.


Part = Literal["given", "family", "single", "nickname", "company"]

_word_in = word_finder(letter=r"[^\W_]", joints=r"'’\-.")


class Alias(Struct, frozen=True, gc=False):
    """One name of a contact: its words in order, and the particles before the family name."""

    part: Part
    words: tuple[str, ...]
    particles: tuple[str, ...] = ()


class ParsedName(Struct, frozen=True, gc=False):
    """All names of a contact, split into parts."""

    client_id: str
    given: tuple[str, ...]
    middle: tuple[str, ...]
    family: tuple[str, ...]
    particles: tuple[str, ...]
    aliases: tuple[Alias, ...]
    gender: str


def parse_name(contact: Contact) -> ParsedName:
    """Parse a contact's name, nicknames and company."""
    words = _words(contact.name)
    aliases = [Alias("nickname", _folds(_words(nickname))) for nickname in contact.nicknames]
    if contact.company:
        aliases.append(Alias("company", company_core(_words(contact.company))))
    given: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    particles: tuple[str, ...] = ()
    middle: tuple[str, ...] = ()
    if is_company(contact.name, words):
        aliases.append(Alias("company", company_core(words)))
    else:
        given, middle, particles, family = _person(words, comma="," in contact.name)
        if not family:
            aliases.append(Alias("single", _folds(list(given))))
            given = ()
    gender = gender_of(given[0]) if given else ""
    return ParsedName(
        contact.id, given, middle, family, particles, tuple(one for one in aliases if one.words), gender
    )


def _words(text: str) -> list[str]:
    whole = composed(text.replace("&", " "))
    return _word_in(whole).findall(whole)


def _folds(words: list[str]) -> tuple[str, ...]:
    return tuple(fold for fold in (folded(word) for word in words) if fold)


def is_company(name: str, words: list[str]) -> bool:
    """Return whether a name is a company's: by legal form, trade, ampersand or number."""
    folds = _folds(words)
    if len(folds) > 1 and (folds[-1] in word_lists.LEGAL_FORMS or "&" in name):
        return True
    return any(fold in word_lists.COMPANY_WORDS for fold in folds) or any(fold.isdigit() for fold in folds)


def company_core(words: list[str]) -> tuple[str, ...]:
    """Return a company's words without legal form, articles and trailing 's."""
    folds = [folded(re.sub(r"['’]s$", "", word)) for word in words]
    core = [
        fold
        for fold in folds
        if fold and fold not in word_lists.ARTICLES and fold not in word_lists.LEGAL_FORMS
    ]
    return tuple(core or [fold for fold in folds if fold])


def _person(
    words: list[str], *, comma: bool
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return given name, middle names, particles and family name, in English order."""
    remaining = [word for word in words if not _is_title_or_suffix(folded(word))]
    if comma and len(remaining) > 1:
        remaining = [*remaining[1:], remaining[0]]
    if len(remaining) < 2:
        return tuple(remaining[:1]), (), (), ()
    rest = remaining[1:]
    at = next((place for place, word in enumerate(rest[:-1]) if folded(word) in word_lists.PARTICLES), None)
    if at is not None:
        places = range(at, len(rest) - 1)
        end = next(
            (place for place in places if folded(rest[place]) not in word_lists.PARTICLES), len(rest) - 1
        )
        return (
            (remaining[0],),
            _folds(rest[:at]),
            tuple(folded(word) for word in rest[at:end]),
            tuple(rest[end:]),
        )
    return (remaining[0],), _folds(rest[:-1]), (), (rest[-1],)


def _is_title_or_suffix(fold: str) -> bool:
    return fold in word_lists.TITLES or fold in word_lists.SUFFIXES


@lru_cache(maxsize=1)
def short_forms() -> dict[str, dict[str, float]]:
    """Return for each given name its short forms and variants, with grades."""
    forms: dict[str, dict[str, float]] = {}
    for line in word_lists.SHORT_FORMS.strip().splitlines():
        formal, _, rest = line.partition(":")
        short = [folded(word) for word in rest.split()]
        _join(forms, short, 0.88)
        for word in short:
            _relate(forms, formal.strip(), word, 0.98)
            _relate(forms, word, formal.strip(), 0.92)
    for line in word_lists.SAME_NAMES.strip().splitlines():
        _join(forms, line.split(), 0.95)
    return forms


def _join(forms: dict[str, dict[str, float]], group: list[str], grade: float) -> None:
    for one in group:
        for other in group:
            if one != other:
                _relate(forms, one, other, grade)


def _relate(forms: dict[str, dict[str, float]], name: str, form: str, grade: float) -> None:
    related = forms.setdefault(name, {})
    related[form] = max(grade, related.get(form, 0.0))


@lru_cache(maxsize=1)
def vocabulary() -> "Vocabulary":
    return Vocabulary()


class Vocabulary:
    """The word lists as sets."""

    def __init__(self) -> None:
        lists = (
            word_lists.ENGLISH,
            word_lists.GERMAN,
            word_lists.FRENCH,
            word_lists.SPANISH,
            word_lists.ITALIAN,
            word_lists.DUTCH,
        )
        context_words = (
            word_lists.BEFORE_NAME,
            word_lists.AFTER_NAME,
            word_lists.BUSINESS,
            word_lists.KIN,
            word_lists.OWN,
            word_lists.CONNECTIVES,
        )
        self.words: frozenset[str] = frozenset().union(*lists, *context_words)
        self.female = word_lists.FEMALE
        self.male = word_lists.MALE
        self.given = self.female | self.male | frozenset(short_forms())
        self.family = word_lists.FAMILY
        self.names = self.given | self.family


def gender_of(given: str) -> str:
    """Return "m" or "f" if a given name, or the name it abbreviates, implies it; else an empty string."""
    lists = vocabulary()
    for fold in spellings(given):
        female, male = fold in lists.female, fold in lists.male
        if female != male:
            return "f" if female else "m"
    return ""
