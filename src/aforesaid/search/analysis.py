"""From text to terms: what is indexed and what is asked for, the same on every store.

Letters are folded (case, width, accents), words split and stemmed, words that carry no meaning left
out. Scripts that put no spaces between words become overlapping pairs of characters. Any text is
fine: there is no query syntax, and what is neither letter nor digit separates.

Below: dialects. Above: the stores that index, and the ranking.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any

from aforesaid._internal.combining_marks import marks
from aforesaid.dialects import Meaning, meaning_of
from aforesaid.dialects.parse import text_of
from aforesaid.model.messages import SEALED, Message
from aforesaid.search.stemmer import stem
from aforesaid.search.stop_words import STOP_WORDS

LONGEST_TERM = 64
"""Bytes. What is longer is no word that anybody looks for; its beginning stands for it."""

LONGEST_RESULT = 2_000
"""Characters of a tool's answer that are indexed: its head says what it is about."""


def terms_of(text: str) -> list[str]:
    """The terms of a text, in order: each letters and digits only, and at most 64 bytes long."""
    if text.isascii():
        lower = text.lower()
        return _terms_of_words([lower] if lower.isalnum() else _ASCII_WORD.findall(lower))
    folded = _fold(text)
    words = _WORD.findall(folded)
    if not _UNSPACED.search(folded):
        return _terms_of_words(words)
    return [term for word in words for term in _terms_with_pairs(word)]


def indexed_terms(message: Message) -> list[str]:
    """The terms that a message is found by: its words, who speaks, and when.

    A system message holds instructions, not something that was said: it has none. Nor has a message
    without words, or one that is sealed. The message's time must be set where the date shall count.
    """
    if message.role == "system" or message.dialect == SEALED:
        return []
    said = said_in(message)
    terms = terms_of(said)
    if not terms:
        return []
    if not said.isascii():
        terms += _characters_within(_fold(said))
    named = named_speaker(message)
    terms += terms_of(named)
    terms += map(spoken_by, terms_of(named or prefixed_speaker(said)))
    return [*terms, *_date_terms(message.timestamp)]


def spoken_by(name: str) -> str:
    """The term of a message that somebody of this name speaks, apart from those that mention the name."""
    return f"speaker{name}"[:LONGEST_TERM] if name.isascii() else _cut(f"speaker{name}")


def said_in(message: Message) -> str:
    """The words of a message that a person would look for: its text, what tools were asked and answered."""
    meaning = meaning_of(message)
    if not meaning.calls and not meaning.results:
        return meaning.text
    return "\n".join(filter(None, _parts_said(meaning)))


def _parts_said(meaning: Meaning) -> Iterator[str]:
    yield meaning.text
    for call in meaning.calls:
        yield " ".join(_strings_in(call.arguments))
    for result in meaning.results:
        yield text_of(result.content)[:LONGEST_RESULT]


def _strings_in(value: Any) -> Iterator[str]:
    """The texts among the arguments of a call, however they are nested."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text[:LONGEST_RESULT]
            case dict() as mapping:
                waiting.extend(reversed(mapping.values()))
            case list() as items:
                waiting.extend(reversed(items))


def named_speaker(message: Message) -> str:
    """The name of who speaks, where the message has it as a label; else nothing."""
    # A question is labelled with the agent that answered it: that is not who speaks.
    agent = None if message.role == "user" else message.agent_name
    name = agent or (message.extra.get("name") if message.extra else None)
    return name if isinstance(name, str) else ""


def prefixed_speaker(text: str) -> str:
    """The name of who speaks, where a transcript says it first, as in "Erin: good morning"; else nothing."""
    found = _PREFIX.match(text)
    return found[1] if found and found[1][0].isupper() else ""


_PREFIX = re.compile(r"\s{0,8}([^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30})?):\s")


@cache
def _month(number: int) -> str:
    return stem(_MONTHS[number - 1])


_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def _date_terms(moment: datetime | None) -> tuple[str, ...]:
    if moment is None:
        return ()
    moment = moment.astimezone(UTC)
    return str(moment.day), _month(moment.month), str(moment.year)


# Words

_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)*")
_WORD = re.compile(r"[^\W_]+(?:'[^\W\d_]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "`": "'"})
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u30ff\u31f0-\u31ff"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
    "]+"
)
_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_VOICED = ("\u3099", "\u309a")
"""Marks that make another Japanese syllable, not the same with an accent."""


def _terms_of_words(words: Iterable[str]) -> list[str]:
    return [term for term in map(_TERMS.__getitem__, words) if term]


def _fold(text: str) -> str:
    """One case and one width; marks that stand apart from their letter are gone, so they split no word."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)
    return folded if folded.isascii() else _marks().sub("", unicodedata.normalize("NFC", folded))


@cache
def _marks() -> re.Pattern[str]:
    return re.compile(f"[{marks()}]")


def _terms_with_pairs(word: str) -> Iterator[str]:
    end = 0
    for run in _UNSPACED.finditer(word):
        yield from _terms_between(word[end : run.start()])
        yield from _pairs(run[0])
        end = run.end()
    yield from _terms_between(word[end:])


def _terms_between(text: str) -> Iterator[str]:
    for word in _WORD.findall(text):
        if term := _TERMS[word]:
            yield term


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for first, second in pairwise(run):
        yield first + second


def _characters_within(folded: str) -> list[str]:
    """Chinese characters inside longer runs: many are words by themselves, and a query may be one."""
    runs = (run[0] for run in _UNSPACED.finditer(folded) if len(run[0]) > 1)
    return [character for run in runs for character in _CHINESE.findall(run)]


def _term(word: str) -> str:
    """The term of a folded word; empty for one that carries no meaning."""
    if word in STOP_WORDS:
        return ""
    word = _without_apostrophes(word) if "'" in word else word
    if word.isascii():
        return "" if word in STOP_WORDS else (stem(word) if word.isalpha() else word)[:LONGEST_TERM]
    return _cut(_without_accents(word))


def _without_apostrophes(word: str) -> str:
    """The owner in "Erin's", the noun in "l'été"; else the letters alone."""
    head, _, tail = word.partition("'")
    if tail == "s":
        return head
    return tail if head in _ELIDED and len(tail) > 1 else word.replace("'", "")


_ELIDED = frozenset(("c", "d", "j", "l", "m", "n", "qu", "s", "t", "dell", "nell", "un"))


def _without_accents(word: str) -> str:
    spread = unicodedata.normalize("NFKD", word)
    kept = (c for c in spread if c in _VOICED or unicodedata.category(c)[0] != "M")
    plain = unicodedata.normalize("NFC", "".join(kept)).translate(_STROKES)
    letters = "".join(c for c in plain if c.isalnum())
    if letters in STOP_WORDS:
        return ""
    return stem(letters) if letters.isascii() and letters.isalpha() else letters


_STROKES = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d"})


def _cut(word: str) -> str:
    if len(word) * 4 <= LONGEST_TERM:
        return word
    return word.encode("utf-8", "ignore")[:LONGEST_TERM].decode("utf-8", "ignore")


_MOST_KEPT = 50_000
_LONGEST_KEPT = 40


class _Terms(dict[str, str]):
    """The terms of words seen lately. Speech repeats itself: nearly every word is here already."""

    def __missing__(self, word: str) -> str:
        term = _term(word[: LONGEST_TERM * 4])
        if len(word) <= _LONGEST_KEPT:
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[word] = term
        return term


_TERMS = _Terms()
