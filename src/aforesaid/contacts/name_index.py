"""An owner's contacts indexed by the words of their names: exact, by sound, by spelling.

The parts are structs outside Python's garbage collection: otherwise, collections during the build of a large
index, on its thread, would stop the event loop for hundreds of milliseconds.

Built once per owner and updated per contact. Lookups may run on another thread than updates: each key maps
to an immutable tuple that is replaced as a whole.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from aforesaid.contacts.names import (
    HOMOPHONE,
    ParsedName,
    folded,
    near_keys,
    parse_name,
    readings,
    short_forms,
    similarity,
    skeleton,
    spellings,
    vocabulary,
)
from aforesaid.model.contacts import Contact

Slot = Literal["given", "family", "alias"]

# Minimum similarity between a word and a name.
MIN_SIMILARITY = 0.8
# Length range of words that may be misspelt names: in a shorter word every letter is significant.
SHORTEST_MISSPELT, LONGEST_MISSPELT = 4, 40


class Posting(Struct, frozen=True, gc=False):
    """A word of a contact's name: its part of the name, and how certain it is as that name."""

    client_id: str
    slot: Slot
    word: str
    grade: float


class NameIndex:
    """One owner's contacts by the words of their names."""

    def __init__(self, contacts: Iterable[Contact] = ()) -> None:
        self.contacts: dict[str, Contact] = {}
        self.names: dict[str, ParsedName] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._postings: dict[str, tuple[Posting, ...]] = {}
        self._near: dict[str, tuple[str, ...]] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        for contact in contacts:
            self.put(contact)

    def __len__(self) -> int:
        return len(self.contacts)

    def put(self, contact: Contact) -> None:
        """Add or replace a contact."""
        self.remove(contact.id)
        record = parse_name(contact)
        keys: dict[str, None] = {}
        for word, posting in _postings(record):
            if not word:
                continue  # the name contains only symbols
            # Several contacts share a word; its near keys are stored once.
            if word not in self._postings:
                self._add_near_keys(word)
            self._postings[word] = (*self._postings.get(word, ()), posting)
            keys[word] = None
        for address in addresses_of(contact):
            self._addresses[address] = (*self._addresses.get(address, ()), contact.id)
        self.names[contact.id] = record
        self._keys[contact.id] = tuple(keys)
        self.contacts[contact.id] = contact

    def remove(self, client_id: str) -> None:
        """Remove a contact."""
        contact = self.contacts.pop(client_id, None)
        if contact is None:
            return
        self.names.pop(client_id, None)
        for word in self._keys.pop(client_id):
            remaining = tuple(one for one in self._postings[word] if one.client_id != client_id)
            if remaining:
                self._postings[word] = remaining
            else:
                del self._postings[word]
                self._remove_near_keys(word)
        for address in addresses_of(contact):
            _remove_value(self._addresses, address, client_id)

    def exact(self, word: str) -> tuple[Posting, ...]:
        return self._postings.get(word, ())

    def by_address(self, address: str) -> tuple[str, ...]:
        """Return the contacts with this mail address or phone number."""
        return self._addresses.get(address, ())

    def misspelt(self, word: str, *, by_sound_only: bool) -> Iterator[tuple[str, float]]:
        """Yield the names that this word may be a misspelling of, with grades."""
        if not SHORTEST_MISSPELT <= len(word) <= LONGEST_MISSPELT:
            return
        found: set[str] = set()
        # Candidates by lookup instead of comparing every name: a sentence may take 5 ms with 10,000 contacts.
        for key in _near_keys(word):
            found.update(self._near.get(key, ()))
        # The caller has the exact matches already.
        found.discard(word)
        for name in found:
            grade = similarity(word, name)
            if grade >= (HOMOPHONE if by_sound_only else MIN_SIMILARITY):
                yield name, grade

    def _add_near_keys(self, word: str) -> None:
        for key in _near_keys(word):
            self._near[key] = (*self._near.get(key, ()), word)

    def _remove_near_keys(self, word: str) -> None:
        for key in _near_keys(word):
            _remove_value(self._near, key, word)


def _near_keys(word: str) -> list[str]:
    if not SHORTEST_MISSPELT <= len(word) <= LONGEST_MISSPELT:
        return []
    return [*(f"={one}" for one in readings(word)), f"~{skeleton(word)}", *near_keys(word)]


def _remove_value(index: dict[str, tuple[str, ...]], key: str, value: str) -> None:
    remaining = tuple(one for one in index.get(key, ()) if one != value)
    if remaining:
        index[key] = remaining
    else:
        index.pop(key, None)


def _postings(record: ParsedName) -> Iterator[tuple[str, Posting]]:
    """Yield every word that finds the contact, with its posting."""
    for given in record.given:
        for word, grade in _given_forms(given).items():
            yield word, Posting(record.client_id, "given", word, grade)
    for family in record.family:
        for word in spellings(family):
            yield word, Posting(record.client_id, "family", word, 1.0)
    for alias in record.aliases:
        for word in dict.fromkeys(alias.words):
            yield folded(word), Posting(record.client_id, "alias", folded(word), 1.0)


def _given_forms(given: str) -> dict[str, float]:
    forms: dict[str, float] = {}
    for spelling in spellings(given):
        for form, grade in short_forms().get(spelling, {}).items():
            forms[form] = max(grade, forms.get(form, 0.0))
    # The name itself wins where it is also a short form of another name.
    return forms | dict.fromkeys(spellings(given), 1.0)


_DIGITS = re.compile(r"\D+")
# The last digits only: the same number is written with and without its country code.
_COMPARED_DIGITS = 9
_FEWEST_DIGITS = 7


def addresses_of(contact: Contact) -> list[str]:
    """Return the mail address and phone number of a contact as keys for `by_address`."""
    found = [contact.email.casefold()] if contact.email else []
    number = number_key(contact.phone or "")
    return [*found, number] if number else found


def number_key(text: str) -> str | None:
    """Return the last digits of a phone number, so that a country prefix makes no difference."""
    digits = _DIGITS.sub("", text)
    return f"#{digits[-_COMPARED_DIGITS:]}" if len(digits) >= _FEWEST_DIGITS else None


def is_other_name(word: str) -> bool:
    """Return whether the word is a name itself and therefore not a misspelling of another."""
    return word in vocabulary().names
