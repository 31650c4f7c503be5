"""What every contact of an owner is called, looked up by word: exactly, by sound, by letters. Below: naming.

Built once for an owner and changed contact by contact. Lookups may run on another thread than changes: what a
key leads to is a tuple that is exchanged whole, never changed.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from aforesaid.contacts.names import Named, named, short_forms, vocabulary
from aforesaid.contacts.spelling import HOMOPHONE, folded, near_keys, similarity, skeleton, sound, spellings
from aforesaid.model.contacts import Contact

Slot = Literal["given", "family", "alias"]

LEAST = 0.8
"""How well a word must say a name to be looked at."""
SHORTEST_MISSPELT, LONGEST_MISSPELT = 4, 40
"""Letters of a word that may be a misspelt name: in a shorter one each letter says too much."""


class Posting(NamedTuple):
    """A word that a contact is called by: which of its words, as what, and how well it says it."""

    client_id: str
    slot: Slot
    word: str
    grade: float


class NameIndex:
    """One owner's contacts by the words that they are called by."""

    def __init__(self, contacts: Iterable[Contact] = ()) -> None:
        self.contacts: dict[str, Contact] = {}
        self.names: dict[str, Named] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._postings: dict[str, tuple[Posting, ...]] = {}
        self._near: dict[str, tuple[str, ...]] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        for contact in contacts:
            self.put(contact)

    def __len__(self) -> int:
        return len(self.contacts)

    def put(self, contact: Contact) -> None:
        """The contact is new, or is called otherwise now."""
        self.remove(contact.id)
        record = named(contact)
        keys: dict[str, None] = {}
        for word, posting in _postings(record):
            if not word:
                continue  # a name of signs alone
            if word not in self._postings:
                self._make_findable(word)
            self._postings[word] = (*self._postings.get(word, ()), posting)
            keys[word] = None
        for address in addresses_of(contact):
            self._addresses[address] = (*self._addresses.get(address, ()), contact.id)
        self.names[contact.id] = record
        self._keys[contact.id] = tuple(keys)
        self.contacts[contact.id] = contact

    def remove(self, client_id: str) -> None:
        """The contact is gone."""
        contact = self.contacts.pop(client_id, None)
        if contact is None:
            return
        self.names.pop(client_id, None)
        for word in self._keys.pop(client_id):
            left = tuple(one for one in self._postings[word] if one.client_id != client_id)
            if left:
                self._postings[word] = left
            else:
                del self._postings[word]
                self._make_unfindable(word)
        for address in addresses_of(contact):
            _take_out(self._addresses, address, client_id)

    def exact(self, word: str) -> tuple[Posting, ...]:
        return self._postings.get(word, ())

    def at(self, address: str) -> tuple[str, ...]:
        """Whose address or number this is."""
        return self._addresses.get(address, ())

    def misspelt(self, word: str, *, by_sound_only: bool) -> Iterator[tuple[str, float]]:
        """The words that this one may stand for, other than itself, and how well it says them."""
        if not SHORTEST_MISSPELT <= len(word) <= LONGEST_MISSPELT:
            return
        found: set[str] = set()
        for key in (f"={sound(word)}", f"~{skeleton(word)}", *near_keys(word)):
            found.update(self._near.get(key, ()))
        found.discard(word)
        for name in found:
            grade = similarity(word, name)
            if grade >= (HOMOPHONE if by_sound_only else LEAST):
                yield name, grade

    def _make_findable(self, word: str) -> None:
        for key in _near_keys(word):
            self._near[key] = (*self._near.get(key, ()), word)

    def _make_unfindable(self, word: str) -> None:
        for key in _near_keys(word):
            _take_out(self._near, key, word)


def _near_keys(word: str) -> list[str]:
    if not SHORTEST_MISSPELT <= len(word) <= LONGEST_MISSPELT:
        return []
    return [f"={sound(word)}", f"~{skeleton(word)}", *near_keys(word)]


def _take_out(held: dict[str, tuple[str, ...]], key: str, value: str) -> None:
    left = tuple(one for one in held.get(key, ()) if one != value)
    if left:
        held[key] = left
    else:
        held.pop(key, None)


def _postings(record: Named) -> Iterator[tuple[str, Posting]]:
    """Each word by which the contact is looked up, with what it says."""
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
    return forms | dict.fromkeys(spellings(given), 1.0)


_DIGITS = re.compile(r"\D+")
_COMPARED_DIGITS = 9
_FEWEST_DIGITS = 7


def addresses_of(contact: Contact) -> list[str]:
    """The mail address and the number of a contact, as `at` wants them."""
    found = [contact.email.casefold()] if contact.email else []
    number = number_key(contact.phone or "")
    return [*found, number] if number else found


def number_key(text: str) -> str | None:
    """A phone number by its last digits: with or without a country's prefix it is the same one."""
    digits = _DIGITS.sub("", text)
    return f"#{digits[-_COMPARED_DIGITS:]}" if len(digits) >= _FEWEST_DIGITS else None


def is_other_name(word: str) -> bool:
    """Whether this is a name by itself: then it is no misspelling of another."""
    return word in vocabulary().names
