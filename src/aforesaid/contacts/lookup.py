"""Find contacts by a typed query: partial words, misspelt words, addresses."""

from aforesaid.contacts.name_index import NameIndex
from aforesaid.contacts.spelling import folded
from aforesaid.model.contacts import Contact


def look_up(query: str, index: NameIndex) -> list[Contact]:
    """Return the contacts that match every word of the query, best first; all by name without a query."""
    words = [word for word in (folded(part) for part in query.split()) if word]
    misspelt = [_misspelt(word, index) for word in words]
    scored = []
    for contact in list(index.contacts.values()):
        grades = [
            _grade(word, contact) or others.get(contact.id, 0.0)
            for word, others in zip(words, misspelt, strict=True)
        ]
        if all(grades):
            scored.append((-sum(grades), contact.name.casefold(), contact.id, contact))
    return [contact for *_, contact in sorted(scored)]


def _grade(word: str, contact: Contact) -> float:
    """Return how well a word matches a contact: 3 a whole word, 2 a prefix, 1 inside a word."""
    texts = (
        contact.name,
        *contact.nicknames,
        contact.company or "",
        contact.email or "",
        contact.phone or "",
    )
    words = [folded(part) for text in texts for part in text.replace("@", " ").split()]
    if word in words:
        return 3.0
    if any(one.startswith(word) for one in words):
        return 2.0
    whole = " ".join(folded(text) for text in texts)
    return 1.0 if len(word) > 1 and word in whole else 0.0


def _misspelt(word: str, index: NameIndex) -> dict[str, float]:
    """Return the contacts with a name similar to this word, with grades."""
    grades: dict[str, float] = {}
    for name, grade in ((word, 1.0), *index.misspelt(word, by_sound_only=False)):
        for one in index.exact(name):
            grades[one.client_id] = max(grades.get(one.client_id, 0.0), 0.9 * grade * one.grade)
    return grades
