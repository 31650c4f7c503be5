"""An owner's contacts: add, get, update, remove, list.

Each contact is a document of the kind `contacts`. A conversation refers to a contact by `client_id` and
stores a copy of its name. Removing a contact unlinks its conversations and keeps them.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.contacts.name_index import NameIndex
from aforesaid.contacts.names import folded
from aforesaid.contracts import ConversationStore, Document
from aforesaid.errors import ContactNotFound, ConversationNotFound, DocumentConflict, InvalidInput, shown
from aforesaid.model.contacts import (
    KIND,
    Contact,
    ContactBody,
    body_of,
    contact_from,
    decode_body,
    encode_body,
    parse_fields,
)
from aforesaid.model.conversations import Changes, Conversation, Query, check_count
from aforesaid.model.ids import IdSource, new_id, parse_uuid
from aforesaid.telemetry.events import watched_as

if TYPE_CHECKING:
    from aforesaid.contacts.csv_import import Imported

# Contacts per page.
PAGE = 500


class NameIndexes(Protocol):
    """The name indexes of owners, shared by the handles of a memory and updated by each change."""

    async def index_of(self, owner: str, store: ConversationStore) -> NameIndex: ...
    def written(self, owner: str, contact: Contact) -> None: ...
    def removed(self, owner: str, client_id: str) -> None: ...


class ContactPage(Struct, frozen=True, kw_only=True):
    """Some contacts in the order of their ids, and the key of the next page."""

    contacts: tuple[Contact, ...]
    next: str | None = None


class ContactsProtocol(Protocol):
    """One owner's contacts, in this process or behind a server. `Contacts` describes the methods in full."""

    async def add(
        self,
        name: str,
        *,
        nicknames: Sequence[str] = (),
        company: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        notes: str | None = None,
        client_id: str | None = None,
    ) -> Contact:
        """Add a contact. Raise `DocumentConflict` if the id is taken."""

    async def get(self, client_id: str) -> Contact:
        """Return the contact. Raise `ContactNotFound`."""

    async def lookup(self, client_id: str) -> Contact | None:
        """Return the contact, or None."""

    async def list(self, limit: int = 50, after: str | None = None) -> ContactPage:
        """Return contacts after the key `after`, in the order of their ids, that of creation."""

    def every(self) -> AsyncIterator[Contact]:
        """Yield all contacts."""

    async def find(self, query: str, limit: int = 20) -> "list_[Contact]":
        """Return contacts by parts of names, companies, addresses and numbers, best first. Tolerate
        misspellings.
        """

    async def update(
        self,
        client_id: str,
        *,
        name: str | None = None,
        nicknames: Sequence[str] | None = None,
        company: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        notes: str | None = None,
        clear: Collection[str] = (),
    ) -> Contact:
        """Change the given fields. None leaves a field unchanged; a field named in `clear` is emptied."""

    async def remove(self, client_id: str) -> bool:
        """Remove the contact and unlink its conversations; return whether it existed."""

    async def import_csv(self, text: str) -> "Imported":
        """Import a CSV file: see `csv_import` for the rules and headers."""


@watched_as("clients.")
class Contacts:
    """One owner's contacts; `manager.clients`."""

    def __init__(
        self,
        store: ConversationStore,
        *,
        owner: str = "",
        resources: NameIndexes | None = None,
        ids: IdSource = new_id,
    ) -> None:
        self._store = store
        self._owner = owner
        self._resources = resources
        self._ids = ids

    async def add(
        self,
        name: str,
        *,
        nicknames: Sequence[str] = (),
        company: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        notes: str | None = None,
        client_id: str | None = None,
    ) -> Contact:
        """Add a contact. Raise `DocumentConflict` if the id is taken."""
        fields = {
            "name": name,
            "nicknames": nicknames,
            "company": company,
            "email": email,
            "phone": phone,
            "notes": notes,
        }
        key = self._ids() if client_id is None else parse_uuid(client_id, field="client_id")
        body = ContactBody(**parse_fields(fields), created_at=self._store.now())
        return await self._put(key, body, expected=0)

    async def get(self, client_id: str) -> Contact:
        """Return the contact. Raise `ContactNotFound`."""
        found = await self.lookup(client_id)
        if found is None:
            raise ContactNotFound(client_id)
        return found

    async def lookup(self, client_id: str) -> Contact | None:
        """Return the contact, or None."""
        key = parse_uuid(client_id, field="client_id")
        document = await self._store.get_document(KIND, key)
        return None if document is None else contact_from_document(document)

    async def list(self, limit: int = 50, after: str | None = None) -> ContactPage:
        """Return contacts after the key `after`, in the order of their ids, which is the order of
        creation.
        """
        check_count(limit, field="limit", least=1)
        found = await self._store.documents(KIND, after=after, limit=limit + 1)
        shown = tuple(contact_from_document(document) for document in found[:limit])
        return ContactPage(contacts=shown, next=shown[-1].id if len(found) > limit else None)

    async def every(self) -> AsyncIterator[Contact]:
        """Yield all contacts."""
        after: str | None = None
        while True:
            page = await self.list(limit=PAGE, after=after)
            for contact in page.contacts:
                yield contact
            after = page.next
            if after is None:
                return

    async def find(self, query: str, limit: int = 20) -> "list_[Contact]":
        """Return contacts by parts of names, companies, addresses and numbers, best first. Tolerate
        misspellings.
        """
        from aforesaid.contacts.name_index import NameIndex

        check_count(limit, field="limit", least=1)
        if not isinstance(query, str):
            raise InvalidInput(f"query must be text; got {shown(query)}", field="query", value=query)
        # Without shared resources, as in a single call, an index is built for this query.
        if self._resources is None:
            index = NameIndex([contact async for contact in self.every()])
        else:
            index = await self._resources.index_of(self._owner, self._store)
        return (await asyncio.to_thread(look_up, query, index))[:limit]

    async def update(
        self,
        client_id: str,
        *,
        name: str | None = None,
        nicknames: Sequence[str] | None = None,
        company: str | None = None,
        email: str | None = None,
        phone: str | None = None,
        notes: str | None = None,
        clear: Collection[str] = (),
    ) -> Contact:
        """Change the given fields. None leaves a field unchanged; a field named in `clear` is emptied.

        A new name is copied to the client's conversations.
        """
        fields = {
            "name": name,
            "nicknames": nicknames,
            "company": company,
            "email": email,
            "phone": phone,
            "notes": notes,
        }
        changes = parse_fields({field: value for field, value in fields.items() if value is not None})
        changes |= cleared_fields(clear)
        while True:
            before = await self.get(client_id)
            try:
                after = await self._put(
                    before.id, replace(body_of(before), **changes), expected=before.version
                )
            except DocumentConflict:
                continue  # changed concurrently: apply these changes to the new version
            if after.name != before.name:
                await self._rename(after)
            return after

    async def remove(self, client_id: str) -> bool:
        """Remove the contact and unlink its conversations; return whether it existed."""
        key = parse_uuid(client_id, field="client_id")
        await self._unlink_conversations(key)
        gone = await self._store.delete_document(KIND, key)
        if self._resources is not None:
            self._resources.removed(self._owner, key)
        await self._unlink_conversations(key)  # again, for links made concurrently
        return gone

    async def import_csv(self, text: str) -> "Imported":
        """Import a CSV file: see `csv_import` for the rules and headers.

        Invalid lines are returned with their number and the reason; all others are imported.
        """
        from aforesaid.contacts.csv_import import import_rows

        return await import_rows(self, text)

    async def _put(self, key: str, body: ContactBody, *, expected: int | None) -> Contact:
        document = await self._store.put_document(KIND, key, encode_body(body), expected_version=expected)
        contact = contact_from_document(document)
        if self._resources is not None:
            self._resources.written(self._owner, contact)
        return contact

    async def _rename(self, contact: Contact) -> None:
        after: str | None = None
        while True:
            page = await self._store.find(Query(client_id=contact.id, limit=PAGE, after=after))
            for record in page.conversations:
                await self._change(record, Changes(client_name=contact.name))
            after = page.next
            if after is None:
                return

    async def _unlink_conversations(self, client_id: str) -> None:
        while found := (await self._store.find(Query(client_id=client_id, limit=PAGE))).conversations:
            for record in found:
                await self._change(record, Changes(client_id=None))

    async def _change(self, record: Conversation, changes: Changes) -> None:
        try:
            await self._store.update(record.id, changes)
        except ConversationNotFound:
            return  # removed concurrently


def contact_from_document(document: Document) -> Contact:
    """Return the contact in a document."""
    body = decode_body(document.data)
    return contact_from(document.key, body, updated_at=document.updated_at, version=document.version)


_EMPTY: dict[str, Any] = {"nicknames": (), "company": None, "email": None, "phone": None, "notes": None}


def cleared_fields(fields: Collection[str]) -> dict[str, Any]:
    """Return changes that empty these fields. Raise `InvalidInput` for a field that cannot be emptied."""
    for field in fields:
        if field not in _EMPTY:
            raise InvalidInput.not_in("clear", field, _EMPTY)
    return {field: _EMPTY[field] for field in fields}


# The built-in `list`, which the method `list` shadows.
list_ = list


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
