"""Convert text to terms, for the index and for questions, the same on every store.

Letters are folded (case, width, accents), words are split and stemmed, and stop words are dropped. Scripts
without spaces between words become overlapping pairs of characters. There is no query syntax: every character
that is neither letter nor digit is a separator.

Stop words are English, and function words of German, Dutch, French, Spanish, Italian and Portuguese that are
not content words in another of these languages. A lookup uses the word without apostrophes and accents.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any

from aforesaid._internal.patterns import lazy_pattern
from aforesaid.dialects import Meaning, meaning_of
from aforesaid.dialects.parse import text_of
from aforesaid.model.messages import SEALED, Message
from aforesaid.search.stemmer import stem

# Combining marks: characters that modify the letter before them.


@cache
def marks() -> str:
    """Return every combining mark of the planes with scripts, as the inside of a character class.

    Computed on first use, because iterating over the planes is slow.
    """
    return "".join(_ranges(_is_mark))


def _is_mark(point: int) -> bool:
    return unicodedata.category(chr(point))[0] == "M"


def _ranges(wanted: Callable[[int], bool]) -> Iterable[str]:
    start = None
    for point in range(0x300, 0x20000):
        if wanted(point):
            start = point if start is None else start
        elif start is not None:
            yield f"{chr(start)}-{chr(point - 1)}"
            start = None


_ENGLISH = """
a about above after again against all am an and any are aren't as at be because been before being below
between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each
few for from further had hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself
him himself his how how's i i'd i'll i'm i've if in into is isn't it it'd it'll it's its itself just let's me
more most my myself no nor not of off on once only or other our ours ourselves out over own same she she'd
she'll she's should shouldn't so some such than that that's the their theirs them themselves then there
there's these they they'd they'll they're they've this those through to too under until up very was wasn't we
we'd we'll we're we've were weren't what what's when when's where where's which while who who's whom why
why's will with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
dont didnt doesnt isnt wasnt arent cant couldnt shouldnt wouldnt wont havent hasnt hadnt im ive youre thats
"""

_OTHERS = """
der das dem den des ein eine einen einem einer und oder aber ist sind nicht ich du er sie wir ihr mich dich
mir dir mein meine dein deine sein seine auf mit von zu zum zur im bei nach wie wo wer wann warum habe hast
het een en of maar niet ik jij hij zij wij mijn jouw zijn op met van voor naar bij hoe waar wie wanneer heb
le la les un une et ou mais est sont ne pas je tu il elle nous vous ils elles mon ma mes ton ta tes ce cette
ces dans avec pour sur que qui quand comment ai as du de au aux
el los las una unos unas y o pero es son yo ella nosotros mi mis su sus en con por para que quien cuando como
lo gli uno e ma sono non io lui lei noi voi mio mia tuo tua nel con per di da del della che chi quando come
os um uma ou mas eu ele ela nos meu minha seu sua em com por para do da dos das que quem quando como
"""

STOP_WORDS = frozenset(_ENGLISH.split()) | frozenset(_OTHERS.split())


# Maximum length of a term in bytes; a longer word is truncated.
LONGEST_TERM = 64

# Characters of a tool result that are indexed: its beginning describes the topic.
LONGEST_RESULT = 2_000


def terms_of(text: str) -> list[str]:
    """Return the terms of a text in order: letters and digits only, at most 64 bytes each."""
    if text.isascii():
        lower = text.lower()
        return _terms_of_words([lower] if lower.isalnum() else _ASCII_WORD.findall(lower))
    folded = _fold(text)
    words = _WORD.findall(folded)
    if not _UNSPACED.search(folded):
        return _terms_of_words(words)
    return [term for word in words for term in _terms_with_pairs(word)]


def indexed_terms(message: Message) -> list[str]:
    """Return the terms that find a message: its words, its speaker and its date.

    A system message has no terms, because it contains instructions. A sealed message and a message without
    words have none either. Date terms require a timestamp on the message.
    """
    if message.role == "system" or message.dialect == SEALED:
        return []
    text = searchable_text(message)
    terms = terms_of(text)
    if not terms:
        return []
    if not text.isascii():
        terms += _characters_within(_fold(text))
    name = named_speaker(message)
    terms += terms_of(name)
    terms += map(speaker_term, terms_of(name or prefixed_speaker(text)))
    return [*terms, *_date_terms(message.timestamp)]


def speaker_term(name: str) -> str:
    """Return the term for messages spoken by this name, distinct from messages that mention it."""
    return f"speaker{name}"[:LONGEST_TERM] if name.isascii() else _cut(f"speaker{name}")


def searchable_text(message: Message) -> str:
    """Return a message's text, the arguments of its tool calls and its tool results."""
    meaning = meaning_of(message)
    if not meaning.calls and not meaning.results:
        return meaning.text
    return "\n".join(filter(None, _text_parts(meaning)))


def _text_parts(meaning: Meaning) -> Iterator[str]:
    yield meaning.text
    for call in meaning.calls:
        yield " ".join(_strings_in(call.arguments))
    for result in meaning.results:
        yield text_of(result.content)[:LONGEST_RESULT]


def _strings_in(value: Any) -> Iterator[str]:
    """Yield the strings among the arguments of a call, at any depth."""
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
    """Return the speaker's name from the message's labels, or an empty string."""
    # A user message is labelled with the agent that answered it, which is not its speaker.
    agent = None if message.role == "user" else message.agent_name
    name = agent or (message.extra.get("name") if message.extra else None)
    return name if isinstance(name, str) else ""


def prefixed_speaker(text: str) -> str:
    """Return the speaker's name from a transcript prefix such as "Erin: good morning", or an empty string."""
    found = _PREFIX.match(text)
    return found[1] if found and found[1][0].isupper() else ""


_PREFIX = lazy_pattern(r"\s{0,8}([^\W\d_][\w.'-]{0,30}(?: [^\W\d_][\w.'-]{0,30})?):\s")


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

_ASCII_WORD = lazy_pattern(r"[a-z0-9]+(?:'[a-z]+)*")
_WORD = lazy_pattern(r"[^\W_]+(?:'[^\W\d_]+)*")
_APOSTROPHES = str.maketrans({"’": "'", "ʼ": "'", "`": "'"})
_UNSPACED = lazy_pattern(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u30ff\u31f0-\u31ff"  # Japanese syllables
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
    "]+"
)
_CHINESE = lazy_pattern("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
# Combining marks that form a different Japanese syllable, not an accented one.
_VOICED = ("\u3099", "\u309a")


def _terms_of_words(words: Iterable[str]) -> list[str]:
    return [term for term in map(_TERMS.__getitem__, words) if term]


def _fold(text: str) -> str:
    """Normalize case and width, and remove free-standing combining marks, which would split words."""
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
    """Return the Chinese characters inside longer runs, because a question may be one character."""
    runs = (run[0] for run in _UNSPACED.finditer(folded) if len(run[0]) > 1)
    return [character for run in runs for character in _CHINESE.findall(run)]


def _term(word: str) -> str:
    """Return the term of a folded word, or an empty string for a stop word."""
    if word in STOP_WORDS:
        return ""
    word = _without_apostrophes(word) if "'" in word else word
    if word.isascii():
        return "" if word in STOP_WORDS else (stem(word) if word.isalpha() else word)[:LONGEST_TERM]
    return _cut(_without_accents(word))


def _without_apostrophes(word: str) -> str:
    """Return "Erin" for "Erin's", "été" for "l'été", and otherwise the word without apostrophes."""
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


_MOST_CACHED = 50_000
_LONGEST_CACHED = 40


class _TermCache(dict[str, str]):
    """Terms of recent words. Most words of a conversation repeat, so nearly every lookup is a hit."""

    def __missing__(self, word: str) -> str:
        term = _term(word[: LONGEST_TERM * 4])
        if len(word) <= _LONGEST_CACHED:
            # Clearing everything is cheaper per lookup than LRU bookkeeping on the hottest path.
            if len(self) >= _MOST_CACHED:
                self.clear()
            self[word] = term
        return term


_TERMS = _TermCache()
