"""Where sentences end, in the languages that users write."""

import re
from collections.abc import Iterator

from aforesaid._internal.patterns import lazy_pattern

CLOSING = "\"'”’»)]）」』"
_END = lazy_pattern(rf"(?:[.!?…؟।]+|[。！？]+)[{re.escape(CLOSING)}]*")
_NO_SPACES = "。！？"
_BEFORE = lazy_pattern(r"[\w.’'-]*\w$")
_WORD = lazy_pattern(r"\s*(\w+)")

# Words that end with a full stop inside a sentence.
_ABBREVIATIONS = frozenset(
    word
    for words in (
        "mr mrs ms dr prof st vs e.g i.e cf approx dept mt u.s u.k gen capt sgt rev hon",
        "hr fr str bzw ca z.b d.h u.a evtl ggf inkl bd sog v.a o.ä s.o vgl zzgl mio mrd tel",  # German
        "mm mme mlle p.ex env chap",  # French
        "sra srta ud uds ee.uu p.ej avda dña",  # Spanish
        "sig sigg dott exmo",  # Italian, Portuguese
        "dhr mevr bijv o.a d.w.z m.b.t",  # Dutch
    )
    for word in words.split()
)
# Abbreviations that may also end a sentence: the next word decides.
_MAY_END = frozenset(("etc", "a.m", "p.m", "inc", "ltd", "co", "jr", "sr", "usw", "ecc", "enz"))
# Words that do so only before a number.
_BEFORE_NUMBERS = frozenset(("no", "nr", "vol", "fig", "abs", "art", "núm", "pág", "pag", "p", "blz", "n"))
# German words before a date or an ordinal number, as in "am 3. Mai" and "der 2. Stock".
_BEFORE_ORDINALS = frozenset(
    word
    for words in (
        "am der die das dem den des im zum zur vom bis ab seit",
        "beim jeden jede jeder ein eine einen",
    )
    for word in words.split()
)
_NUMBER = lazy_pattern(r"(?<!\S)\d{1,2}$")
_INITIALS = lazy_pattern(r"[^\W\d](?:\.[^\W\d])*")


def sentence_ends(text: str) -> Iterator[int]:
    """Yield the places after the ends of sentences."""
    for found in _END.finditer(text):
        if _ends_sentence(text, found):
            yield found.end()


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text. A line break ends a sentence, too."""
    sentences: list[str] = []
    for line in text.splitlines():
        start = 0
        for end in (*sentence_ends(line), len(line)):
            sentences.append(line[start:end].strip())
            start = end
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(text: str, found: re.Match[str]) -> bool:
    after = text[found.end() : found.end() + 2]
    if found[0][0] in _NO_SPACES:
        return True
    if after and not after[0].isspace():
        return False
    if after[:1] not in ("", "\n") and after[1:].islower():
        return False
    if found[0][0] != ".":
        return True
    is_last = after[:1] in ("", "\n")
    return not (_is_item_number(text, found) or (not is_last and _is_inside(text, found)))


def _is_inside(text: str, found: re.Match[str]) -> bool:
    """Return whether the full stop belongs to an abbreviation or an ordinal number."""
    before = _BEFORE.search(text, max(0, found.start() - 20), found.start())
    if before is None:
        return False
    word = before[0].lower().lstrip("'’-.")
    if word in _BEFORE_NUMBERS:
        return text[found.end() :].lstrip()[:1].isdigit()
    if word.isdigit():
        return len(word) <= 2 and _last_word(text[: before.start()]) in _BEFORE_ORDINALS
    if word in _MAY_END:
        return not _starts_sentence(text[found.end() :])
    return word in _ABBREVIATIONS or bool(_INITIALS.fullmatch(word))


def _is_item_number(text: str, found: re.Match[str]) -> bool:
    """Return whether the full stop follows an item's number: one or two digits at the start of a line or
    after a sentence.
    """
    before = _NUMBER.search(text, max(0, found.start() - 20), found.start())
    if before is None:
        return False
    return text[: before.start()].rstrip(" ")[-1:] in ("", "\n", *".!?…:;")


def _last_word(text: str) -> str:
    words = text[-30:].rsplit(maxsplit=1)
    return words[-1].lower() if words else ""


def _starts_sentence(rest: str) -> bool:
    """Return whether the next word is capitalized, as the first of a sentence is."""
    word = _WORD.match(rest[:60])
    return word is not None and word[1][:1].isupper()
