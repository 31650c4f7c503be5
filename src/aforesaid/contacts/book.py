"""An owner's contacts: make, read, change, remove, list. Below: the store's documents. Above: the manager.

Each contact is a document of the kind `contacts`. A conversation refers to one by `client_id`, and keeps its
name beside; when a contact goes, its conversations stay and refer to nobody.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

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
from aforesaid.telemetry.instrumentation import watched_as

if TYPE_CHECKING:
    from aforesaid.contacts.csv_import import Imported
    from aforesaid.contacts.shared import ContactResources

PAGE = 500
"""Contacts that are read at a time."""


class ContactPage(Struct, frozen=True, kw_only=True):
    """Some contacts, in the order of their ids, and where the next begin."""

    contacts: tuple[Contact, ...]
    next: str | None = None


@watched_as("clients.")
class Contacts:
    """One owner's contacts; `manager.clients`."""

    def __init__(
        self,
        store: ConversationStore,
        *,
        owner: str = "",
        resources: "ContactResources | None" = None,
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
        """A new contact. An id that is taken raises `DocumentConflict`."""
        given = {
            "name": name,
            "nicknames": nicknames,
            "company": company,
            "email": email,
            "phone": phone,
            "notes": notes,
        }
        key = self._ids() if client_id is None else parse_uuid(client_id, field="client_id")
        body = ContactBody(**parse_fields(given), created_at=self._store.now())
        return await self._put(key, body, expected=0)

    async def get(self, client_id: str) -> Contact:
        """The contact. Raises `ContactNotFound`."""
        found = await self.lookup(client_id)
        if found is None:
            raise ContactNotFound(client_id)
        return found

    async def lookup(self, client_id: str) -> Contact | None:
        """The contact, or None."""
        key = parse_uuid(client_id, field="client_id")
        document = await self._store.get_document(KIND, key)
        return None if document is None else contact_in(document)

    async def list(self, limit: int = 50, after: str | None = None) -> ContactPage:
        """Contacts in the order of their ids, which is that of their making; those after `after`."""
        check_count(limit, field="limit", least=1)
        found = await self._store.documents(KIND, after=after, limit=limit + 1)
        shown = tuple(contact_in(document) for document in found[:limit])
        return ContactPage(contacts=shown, next=shown[-1].id if len(found) > limit else None)

    async def every(self) -> AsyncIterator[Contact]:
        """All contacts, one after the other."""
        after: str | None = None
        while True:
            page = await self.list(limit=PAGE, after=after)
            for contact in page.contacts:
                yield contact
            after = page.next
            if after is None:
                return

    async def find(self, query: str, limit: int = 20) -> "list_[Contact]":
        """Contacts by parts of names, companies, addresses and numbers, misspelt or not; the best first."""
        from aforesaid.contacts.lookup import look_up
        from aforesaid.contacts.name_index import NameIndex

        check_count(limit, field="limit", least=1)
        if not isinstance(query, str):
            raise InvalidInput(f"query must be text; got {shown(query)}", field="query", value=query)
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
        """Change what is given; None leaves a field as it is, a name in `clear` empties it.

        Conversations of this client follow when the name changes.
        """
        given = {
            "name": name,
            "nicknames": nicknames,
            "company": company,
            "email": email,
            "phone": phone,
            "notes": notes,
        }
        changes = parse_fields({field: value for field, value in given.items() if value is not None})
        changes |= cleared_fields(clear)
        while True:
            before = await self.get(client_id)
            try:
                after = await self._put(
                    before.id, replace(body_of(before), **changes), expected=before.version
                )
            except DocumentConflict:
                continue  # somebody else changed it: what they changed stays
            if after.name != before.name:
                await self._rename(after)
            return after

    async def remove(self, client_id: str) -> bool:
        """Remove the contact; whether there was one. Its conversations stay, with nobody as their client."""
        key = parse_uuid(client_id, field="client_id")
        await self._let_go(key)
        gone = await self._store.delete_document(KIND, key)
        if self._resources is not None:
            self._resources.removed(self._owner, key)
        await self._let_go(key)  # those that were linked meanwhile
        return gone

    async def import_csv(self, text: str) -> "Imported":
        """Bring a CSV file into the contacts: see `importing` for its rules and `csv_files` for its headers.

        Lines that cannot be used come back with their number and the reason; all others are imported.
        """
        from aforesaid.contacts.csv_import import import_rows

        return await import_rows(self, text)

    async def _put(self, key: str, body: ContactBody, *, expected: int | None) -> Contact:
        document = await self._store.put_document(KIND, key, encode_body(body), expected_version=expected)
        contact = contact_in(document)
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

    async def _let_go(self, client_id: str) -> None:
        while found := (await self._store.find(Query(client_id=client_id, limit=PAGE))).conversations:
            for record in found:
                await self._change(record, Changes(client_id=None))

    async def _change(self, record: Conversation, changes: Changes) -> None:
        try:
            await self._store.update(record.id, changes)
        except ConversationNotFound:
            return  # it went meanwhile


def contact_in(document: Document) -> Contact:
    """The contact that a document holds."""
    body = decode_body(document.data)
    return contact_from(document.key, body, updated_at=document.updated_at, version=document.version)


_EMPTY: dict[str, Any] = {"nicknames": (), "company": None, "email": None, "phone": None, "notes": None}


def cleared_fields(fields: Collection[str]) -> dict[str, Any]:
    """The changes that empty these fields, or an error that names the one that cannot be emptied."""
    for field in fields:
        if field not in _EMPTY:
            raise InvalidInput.not_in("clear", field, _EMPTY)
    return {field: _EMPTY[field] for field in fields}


list_ = list
"""The built-in, where the method `list` hides it."""
