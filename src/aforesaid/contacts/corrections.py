"""Find corrections of names in a text: "not Miller, Millar"; "sorry, I mean Harold Finch"."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aforesaid.contacts import word_lists
from aforesaid.contacts.name_index import NameIndex
from aforesaid.contacts.sentences import AnalyzedText

# Words between a rejection and the rejected name: not to Mrs Miller.
MOST_FILLERS = 4


class Correction(NamedTuple):
    """The places of rejected names, and the place from which names replace earlier ones."""

    rejected: tuple[range, ...] = ()
    replaced_at: int | None = None

    @property
    def found(self) -> bool:
        return bool(self.rejected) or self.replaced_at is not None

    def keeps(self, at: int) -> bool:
        """Return whether a name at this place is not rejected."""
        return not any(at in place for place in self.rejected)


def find_correction(text: AnalyzedText, index: NameIndex) -> Correction:
    """Return the correction in a text, and mark in the text where it announces a name."""
    rejected: list[range] = []
    replaced: list[int] = []
    for at in range(len(text.tokens)):
        place = _rejected_name(text, index, at)
        if place is not None:
            rejected.append(place)
            # "not miller millar": the rejected name does not belong to the next.
            text.separate(place.stop)
            # "Millar, not Miller" and "not Miller, Millar"
            text.announced |= {at - 1, _skip_fillers(text, place.stop, across_gaps=True)}
        name = _replacing_name(text, index, at)
        if name is not None:
            replaced.append(name)
            text.announced.add(name)
    return Correction(tuple(rejected), max(replaced, default=None))


def _rejected_name(text: AnalyzedText, index: NameIndex, at: int) -> range | None:
    """Return the place of the name after a rejection that begins here."""
    length = _phrase_at(text, at, word_lists.REJECTIONS)
    if not length or not text.joined(at + length):
        return None
    first = _skip_fillers(text, at + length, across_gaps=False)
    if not text.joined(first):
        return None
    slots = _slots(text, index, first)
    # "It is not Miller's fault" concerns Miller.
    if not slots or text.tokens[first].possessive:
        return None
    full = "given" in slots and text.joined(first + 1) and "family" in _slots(text, index, first + 1)
    return range(first, first + (2 if full else 1))


def _replacing_name(text: AnalyzedText, index: NameIndex, at: int) -> int | None:
    """Return where the name begins that a correction beginning here announces."""
    length = _phrase_at(text, at, word_lists.CORRECTIONS)
    if length:
        return _skip_fillers(text, at + length, across_gaps=True)
    if not text.tokens[at].starts or text.fold(at) not in word_lists.CORRECTION_OPENERS:
        return None
    if text.joined(at + 1):
        return None  # "no Miller" rejects
    first = _skip_fillers(text, at + 1, across_gaps=True)
    last = first
    while text.joined(last + 1) and _slots(text, index, last + 1):
        last += 1
    # "No, Millar." corrects; "No, Millar has not paid." answers a question.
    return first if _slots(text, index, first) and not text.joined(last + 1) else None


def _phrase_at(text: AnalyzedText, at: int, phrases: Mapping[str, Sequence[tuple[str, ...]]]) -> int:
    """Return the number of words of the phrase that begins here, or 0."""
    for phrase in phrases.get(text.fold(at), ()):
        places = range(at, at + len(phrase))
        if all(text.fold(place) == word for place, word in zip(places, phrase, strict=True)) and all(
            text.joined(place) for place in places[1:]
        ):
            return len(phrase)
    return 0


def _skip_fillers(text: AnalyzedText, at: int, *, across_gaps: bool) -> int:
    """Return the first place from here that may begin a name."""
    for place in range(at, at + MOST_FILLERS):
        fold = text.fold(place)
        skipped = fold in word_lists.CORRECTION_FILLERS or fold in word_lists.TITLES
        if not skipped or not (across_gaps or text.joined(place)):
            return place
    return at + MOST_FILLERS


def _slots(text: AnalyzedText, index: NameIndex, at: int) -> set[str]:
    """Return the parts of contacts' names that this word can be."""
    if not 0 <= at < len(text.tokens):
        return set()
    return {one.slot for form in text.tokens[at].forms for one in index.exact(form)}
