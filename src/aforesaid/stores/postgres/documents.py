"""Documents of an owner or of one conversation. Contacts have a table of their own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import asdict

from aforesaid.contracts import Document, Listing, Place
from aforesaid.errors import ConversationNotFound, InvalidId, StoreUnavailable
from aforesaid.model.contacts import KIND, ContactBody, canonical_body, encode_body
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.model.ids import parse_uuid
from aforesaid.stores.postgres import rows

# Documents of the kind `contacts`: rows of `aforesaid.contacts`, visible to plain SQL as `api.contacts`.
#
# A contact that fits the columns is stored only in them, so that plain SQL and the store read and write the
# same data. Any other contact (sealed, or of a later release) is stored as a document.


Run: TypeAlias = Callable[..., Awaitable[list[rows.Row]]]
"""Runs a query with its values as the owner."""

# See `documents.ATTEMPTS`.
ATTEMPTS = 50


def is_contact(place: Place) -> bool:
    """Return whether the document is a row of the contacts: an owner's, of that kind, with a UUID as key."""
    return place.kind == KIND and place.conversation_id is None and _as_uuid(place.key) == place.key


def _as_uuid(key: str) -> str | None:
    try:
        return parse_uuid(key, field="key")
    except InvalidId:
        return None


class ContactRows:
    """One owner's contacts."""

    def __init__(self, run: Run, owned: dict[str, Any]) -> None:
        self._run = run
        self._owned = owned

    async def put(
        self, place: Place, data: bytes, *, expected: int | None, owner_name: str | None
    ) -> Document:
        values = self._owned | _columns(data, self._owned["now"])
        values |= {"key": place.key, "expected": expected, "owner_name": owner_name}
        query = "replace_contact" if expected else "put_contact"
        for _ in range(ATTEMPTS):
            if found := await self._run((query, values)):
                return place.document(data, version=found[0][0], updated_at=self._owned["now"])
            # No row: either the version differs, or another caller was faster between the two statements.
            known = await self.get(place)
            place.check_version(known.version if known else 0, expected)
        raise StoreUnavailable(f"contact {place.key} changes too fast to be written to")

    async def get(self, place: Place) -> Document | None:
        found = await self._read(key=place.key, after="", limit=1)
        return found[0] if found else None

    async def page(self, listing: Listing) -> list[Document]:
        return await self._read(key=None, after=listing.after, limit=listing.limit)

    async def delete(self, place: Place, *, expected: int | None) -> bool:
        for _ in range(ATTEMPTS):
            if await self._run(("delete_contact", self._owned | {"key": place.key, "expected": expected})):
                return True
            known = await self.get(place)
            if known is None:
                return False
            place.check_version(known.version, expected)
        raise StoreUnavailable(f"contact {place.key} changes too fast to be removed")

    def restoring(self, documents: Sequence[Document], owner_name: str | None) -> tuple[str, dict[str, Any]]:
        """Return the query that stores these contacts unchanged, with its values."""
        columns = [_columns(document.data, document.updated_at) for document in documents]
        values = {
            "owner_name": owner_name,
            "keys": [document.key for document in documents],
            "names": [each["name"] for each in columns],
            "nicknames": [msgspec.json.encode(each["nicknames"]).decode() for each in columns],
            "companies": [each["company"] for each in columns],
            "emails": [each["email"] for each in columns],
            "phones": [each["phone"] for each in columns],
            "notes": [each["notes"] for each in columns],
            "data": [each["data"] for each in columns],
            "versions": [document.version for document in documents],
            "created": [each["created_at"] for each in columns],
            "moments": [document.updated_at for document in documents],
        }
        return "restore_contacts", self._owned | values

    async def _read(self, *, key: str | None, after: str, limit: int) -> list[Document]:
        # The condition on `after_id` uses the index of ids. The condition on the text decides, because a
        # cursor may be any key.
        values = {"key": key, "after": after, "after_id": _as_uuid(after), "limit": limit}
        if values["after_id"] != after:
            values["after_id"] = None
        return [_document(row) for row in await self._run(("get_contacts", self._owned | values))]


def _columns(data: bytes, now: Any) -> dict[str, Any]:
    """Return the columns of a contact; the document itself if it does not fit the columns."""
    body = canonical_body(data)
    if body is None:
        # Sealed, or of a later release: stored as it is, with empty columns.
        empty = asdict(ContactBody(name="", created_at=now))
        return empty | {"name": None, "nicknames": [], "data": data}
    return asdict(body) | {"nicknames": list(body.nicknames), "data": None}


def _document(row: rows.Row) -> Document:
    key, version, updated_at, data, name, nicknames, company, email, phone, notes, created_at = row
    if data is None:
        body = ContactBody(
            name=name or "",
            nicknames=tuple(nicknames),
            company=company,
            email=email,
            phone=phone,
            notes=notes,
            created_at=rows.utc(created_at),
        )
        data = encode_body(body)
    return Document(kind=KIND, key=key, data=bytes(data), version=version, updated_at=rows.utc(updated_at))


# Documents of an owner or of one conversation.
#
# Each call is one statement. If a write affects no row, a second statement finds the reason.


"""Runs queries with their values as the owner, in one transaction; returns the rows of the last."""

"""Attempts of a write while other callers create and remove the document. One retry is rare."""


class Documents:
    """The documents of the conversation `id`, or of the owner if it is None."""

    def __init__(self, run: Run, owned: dict[str, Any], conversation_id: str | None) -> None:
        self._run = run
        self._conversation_id = conversation_id
        self._owned = owned | {"id": conversation_id}
        self._contacts = ContactRows(run, owned)

    async def put(
        self, place: Place, data: bytes, *, expected: int | None, owner_name: str | None
    ) -> Document:
        if is_contact(place):
            return await self._contacts.put(place, data, expected=expected, owner_name=owner_name)
        values = self._named(place) | {"data": data, "expected": expected, "owner_name": owner_name}
        query = "replace_document" if expected else "put_document"
        for _ in range(ATTEMPTS):
            if found := await self._run((query, self._owned | values)):
                return place.document(data, version=found[0][0], updated_at=self._owned["now"])
            place.check_version(await self._version(place), expected)
        raise StoreUnavailable(f"document {place.key!r} changes too fast to be written to")

    async def get(self, place: Place) -> Document | None:
        if is_contact(place):
            return await self._contacts.get(place)
        listing = Listing(place.kind, place.conversation_id, after="", limit=1)
        found = await self._page(listing, key=place.key)
        return found[0] if found else None

    async def page(self, listing: Listing) -> list[Document]:
        found = await self._page(listing)
        if listing.kind == CONTACTS and self._conversation_id is None:
            # Contacts are rows of another table, except those whose key is not a UUID.
            found = sorted([*found, *await self._contacts.page(listing)], key=lambda one: one.key)
        return found[: listing.limit]

    async def _page(self, listing: Listing, *, key: str | None = None) -> list[Document]:
        values = {"kind": listing.kind, "key": key, "after": listing.after, "limit": listing.limit}
        found = await self._read("get_documents", "get_derived_documents", values)
        return [
            Document(
                kind=listing.kind,
                key=key,
                data=data,
                version=version,
                updated_at=rows.utc(updated_at),
                conversation_id=listing.conversation_id,
            )
            for key, version, updated_at, data in found
        ]

    async def kinds(self) -> list[str]:
        return [kind for (kind,) in await self._read("document_kinds", "derived_document_kinds", {})]

    async def delete(self, place: Place, *, expected: int | None) -> bool:
        if is_contact(place):
            return await self._contacts.delete(place, expected=expected)
        values = self._owned | self._named(place) | {"expected": expected}
        for _ in range(ATTEMPTS):
            if await self._run(("delete_document", values)):
                return True
            version = await self._version(place)
            if not version:
                return False
            place.check_version(version, expected)
        raise StoreUnavailable(f"document {place.key!r} changes too fast to be removed")

    async def restore(self, restored: Mapping[Place, Document], *, owner_name: str | None) -> None:
        contacts = [document for place, document in restored.items() if is_contact(place)]
        documents = [document for place, document in restored.items() if not is_contact(place)]
        steps = [self._contacts.restoring(contacts, owner_name)] if contacts else []
        if documents:
            steps.append(self._restore_step(documents, owner_name))
        if not await self._run(*steps):
            raise ConversationNotFound(str(self._conversation_id))

    def _restore_step(
        self, documents: Sequence[Document], owner_name: str | None
    ) -> tuple[str, dict[str, Any]]:
        values = {
            "owner_name": owner_name,
            "kinds": [document.kind for document in documents],
            "keys": [document.key for document in documents],
            "versions": [document.version for document in documents],
            "moments": [document.updated_at for document in documents],
            "data": [document.data for document in documents],
        }
        return "restore_documents", self._owned | values

    async def _version(self, place: Place) -> int:
        found = await self.get(place)
        return found.version if found else 0

    async def _read(self, owners: str, derived: str, values: dict[str, Any]) -> list[rows.Row]:
        """Run the first query for an owner's documents, the second for a conversation's."""
        if self._conversation_id is None:
            return await self._run((owners, self._owned | values))
        found = await self._run((derived, self._owned | values))
        if not found:
            raise ConversationNotFound(self._conversation_id)
        return [row for row in found if row[0] is not None]

    def _named(self, place: Place) -> dict[str, Any]:
        return {"kind": place.kind, "key": place.key}
