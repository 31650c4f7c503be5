"""Word lists that distinguish names from other words, in English, German, French, Spanish, Italian and
Dutch.

The lists are in `word_lists.txt`. All words are folded: lower case, without accents. Written for this project
from general knowledge.
"""

import re
from importlib.resources import files


def _read_sections() -> dict[str, str]:
    """Return the text of each list by its name."""
    text = files("aforesaid.contacts").joinpath("word_lists.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"(?m)^\[([\w.]+)\]$", text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


_SECTIONS = _read_sections()


def _words(name: str) -> frozenset[str]:
    return frozenset(_SECTIONS[name].split())


def _phrases(name: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the phrases of a list, one per line, by their first word, the longest first."""
    phrases: dict[str, list[tuple[str, ...]]] = {}
    lines = (tuple(line.split()) for line in _SECTIONS[name].strip().splitlines())
    for phrase in sorted(lines, key=len, reverse=True):
        phrases.setdefault(phrase[0], []).append(phrase)
    return phrases


ENGLISH = _words("english")
GERMAN = _words("german")
FRENCH = _words("french")
SPANISH = _words("spanish")
ITALIAN = _words("italian")
DUTCH = _words("dutch")
# Frequent words by language.
WORDS = {"en": ENGLISH, "de": GERMAN, "fr": FRENCH, "es": SPANISH, "it": ITALIAN, "nl": DUTCH}
# Months, of which April, May, June, August and Julio are also names.
MONTHS = _words("months")
# Places that are also names of people.
PLACES = _words("places")
# Voice assistants.
MACHINES = _words("machines")
# Actions towards a client, and words for a client: a name follows.
BEFORE_NAME = _words("before_name")
# Prepositions and conjunctions before a name.
CONNECTIVES = _words("connectives")
# Prepositions between a matter and the client whose it is.
OWNED_BY = _words("owned_by")
PRONOUNS = _words("pronouns")
# Actions of a client: a name precedes.
AFTER_NAME = _words("after_name")
# Matters between a client and the speaker.
BUSINESS = _words("business")
# Relations of the speaker who are not clients.
KIN = _words("kin")
# Relations and ranks that stand directly before a name: Uncle Mark, Queen Elizabeth.
KIN_TITLES = _words("kin_titles")
# Words that give someone a name: the baby is called, il cane si chiama.
NAMED_SO = _words("named_so")
# Areas called by a name after "of": el barrio de Salazar.
REGIONS = _words("regions")
AND = _words("and")
MYSELF = _words("myself")
# Commands to play music, whose names are artists.
PLAYERS = _words("players")
OWN = _words("own")
ARTICLES = _words("articles")
# Articles before the name of a family: the Finches, los García.
PLURAL_ARTICLES = _words("plural_articles")
# Homes called by a name: the Hoffman place.
PREMISES = _words("premises")
# Phrases before a name that the speaker rejects, and before one that replaces an earlier name.
REJECTIONS = _phrases("rejections")
CORRECTIONS = _phrases("corrections")
# Words that begin a correction, and those that may stand between it and the name.
CORRECTION_OPENERS = _words("correction_openers")
CORRECTION_FILLERS = _words("correction_fillers")
WHEN = _words("when")
WHERE = _words("where")
BEING = _words("being")
# Things and places named after people.
PLACE_NOUNS = _words("place_nouns")
# Verbs whose subject is often not a person.
AUXILIARIES = _words("auxiliaries")
DAYS = _words("days")
# Words for a client, with or without an article.
CLIENTS = _words("clients")
# Frequent words that identify a language.
SIGNS = {language: _words(f"signs.{language}") for language in ("en", "de", "fr", "es", "it", "nl")}

# Given name and its short forms.
SHORT_FORMS = _SECTIONS["short_forms"]
# Given names in several spellings.
SAME_NAMES = _SECTIONS["same_names"]
FEMALE = _words("female")
MALE = _words("male")
FAMILY = _words("family")
_HIS_TITLES = _words("his_titles")
_HER_TITLES = _words("her_titles")
_ANYBODYS_TITLES = _words("anybodys_titles")
# Title → gender: m, f or "" for either.
TITLES = {
    **dict.fromkeys(_HIS_TITLES, "m"),
    **dict.fromkeys(_HER_TITLES, "f"),
    **dict.fromkeys(_ANYBODYS_TITLES, ""),
}
# Titles that are ordinary words or letters without a period or capital.
ONLY_WITH_POINT = _words("only_with_point")
PARTICLES = _words("particles")
SUFFIXES = _words("suffixes")
LEGAL_FORMS = _words("legal_forms")
# Words in company names that are rarely family names.
COMPANY_WORDS = _words("company_words")
