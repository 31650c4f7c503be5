"""Documents of an owner or of one conversation.

Each call is one statement. If a write affects no row, a second statement finds the reason.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from aforesaid.contracts import Document, Listing, Place
from aforesaid.errors import ConversationNotFound, StoreUnavailable
from aforesaid.model.contacts import KIND as CONTACTS
from aforesaid.stores.postgres import rows
from aforesaid.stores.postgres.contacts import ContactRows, is_contact

Run: TypeAlias = Callable[..., Awaitable[list[rows.Row]]]
"""Runs queries with their values as the owner, in one transaction; returns the rows of the last."""

ATTEMPTS = 50
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
