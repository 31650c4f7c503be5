"""Parse a contact's names into words with their parts."""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from aforesaid.contacts.spelling import composed, folded, spellings, word_finder
from aforesaid.contacts.words import common, names
from aforesaid.model.contacts import Contact

Part = Literal["given", "family", "single", "nickname", "company"]

_word_in = word_finder(letter=r"[^\W_]", joints=r"'’\-.")


class Alias(NamedTuple):
    """One name of a contact: its words in order, and the particles before the family name."""

    part: Part
    words: tuple[str, ...]
    particles: tuple[str, ...] = ()


class ParsedName(NamedTuple):
    """All names of a contact, split into parts."""

    client_id: str
    given: tuple[str, ...]
    middle: frozenset[str]
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
    middle: frozenset[str] = frozenset()
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
    if len(folds) > 1 and (folds[-1] in names.LEGAL_FORMS or "&" in name):
        return True
    return any(fold in names.COMPANY_WORDS for fold in folds) or any(fold.isdigit() for fold in folds)


def company_core(words: list[str]) -> tuple[str, ...]:
    """Return a company's words without legal form, articles and trailing 's."""
    folds = [folded(re.sub(r"['’]s$", "", word)) for word in words]
    core = [fold for fold in folds if fold and fold not in common.ARTICLES and fold not in names.LEGAL_FORMS]
    return tuple(core or [fold for fold in folds if fold])


def _person(
    words: list[str], *, comma: bool
) -> tuple[tuple[str, ...], frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Return given name, middle names, particles and family name, in English order."""
    remaining = [word for word in words if not _is_title_or_suffix(folded(word))]
    if comma and len(remaining) > 1:
        remaining = [*remaining[1:], remaining[0]]
    if len(remaining) < 2:
        return tuple(remaining[:1]), frozenset(), (), ()
    rest = remaining[1:]
    at = next((place for place, word in enumerate(rest[:-1]) if folded(word) in names.PARTICLES), None)
    if at is not None:
        places = range(at, len(rest) - 1)
        end = next((place for place in places if folded(rest[place]) not in names.PARTICLES), len(rest) - 1)
        return (
            (remaining[0],),
            frozenset(_folds(rest[:at])),
            tuple(folded(word) for word in rest[at:end]),
            tuple(rest[end:]),
        )
    return (remaining[0],), frozenset(_folds(rest[:-1])), (), (rest[-1],)


def _is_title_or_suffix(fold: str) -> bool:
    return fold in names.TITLES or fold in names.SUFFIXES


@lru_cache(maxsize=1)
def short_forms() -> dict[str, dict[str, float]]:
    """Return for each given name its short forms and variants, with grades."""
    forms: dict[str, dict[str, float]] = {}
    for line in names.SHORT_FORMS.strip().splitlines():
        formal, _, rest = line.partition(":")
        short = [folded(word) for word in rest.split()]
        _join(forms, short, 0.88)
        for word in short:
            _relate(forms, formal.strip(), word, 0.98)
            _relate(forms, word, formal.strip(), 0.92)
    for line in names.SAME_NAMES.strip().splitlines():
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
        lists = (common.ENGLISH, common.GERMAN, common.FRENCH, common.SPANISH, common.DUTCH)
        context_words = (
            common.BEFORE_NAME,
            common.AFTER_NAME,
            common.BUSINESS,
            common.KIN,
            common.OWN,
            common.CONNECTIVES,
        )
        self.words: frozenset[str] = frozenset().union(*lists, *context_words)
        self.female = names.FEMALE
        self.male = names.MALE
        self.given = self.female | self.male | frozenset(short_forms())
        self.family = names.FAMILY
        self.names = self.given | self.family


def gender_of(given: str) -> str:
    """Return "m" or "f" if a given name, or the name it abbreviates, implies it; else an empty string."""
    lists = vocabulary()
    for fold in spellings(given):
        female, male = fold in lists.female, fold in lists.male
        if female != male:
            return "f" if female else "m"
    return ""
