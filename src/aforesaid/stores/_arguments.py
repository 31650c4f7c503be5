"""Parse and validate what callers pass to stores: the parts of URLs, documents. And what stores share."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import TypeVar

from msgspec import Struct

from aforesaid.contracts import (
    ConversationStore,
    Document,
    Listing,
    LogEnd,
    Place,
    check_data,
    check_expected,
    check_restorable_documents,
    parse_holder,
    parse_listing,
    parse_place,
)
from aforesaid.errors import ConversationNotFound, InvalidSetting, shown

# The parts of a store URL, as each store interprets them.


class Address(Struct, frozen=True, kw_only=True):
    """The parts of a store URL.

    `host` is the text between `//` and the next slash. `path` is the rest up to the options, with its leading
    slash. Each store interprets the path itself.
    """

    url: str
    scheme: str
    host: str = ""
    path: str = ""
    options: dict[str, str] = {}

    def take(self, **allowed: Callable[[str], object]) -> dict[str, object]:
        """Parse the options. Raise `InvalidSetting` for an unknown option or an invalid value."""
        values: dict[str, object] = {}
        for name, text in self.options.items():
            if name not in allowed:
                options = ", ".join(sorted(allowed)) or "none"
                raise InvalidSetting(
                    f"{self.scheme}: URLs have no option {shown(name)}; known: {options}",
                    field=name,
                    value=text,
                )
            try:
                values[name] = allowed[name](text)
            except (ValueError, KeyError):
                raise InvalidSetting(
                    f"the option {name} of a {self.scheme}: URL cannot be {shown(text)}",
                    field=name,
                    value=text,
                ) from None
        return values


# Validation of document arguments, shared by all stores.


class DocumentChecks(ConversationStore):
    """Validate the arguments of the document methods; subclasses store the documents."""

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        place = parse_place(kind, key, conversation_id)
        return await self._put_document(place, check_data(data), check_expected(expected_version, least=0))

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        return await self._get_document(parse_place(kind, key, conversation_id))

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self._list_documents(parse_listing(kind, conversation_id, after, limit))

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self._document_kinds(parse_holder(conversation_id))

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        place = parse_place(kind, key, conversation_id)
        return await self._delete_document(place, check_expected(expected_version, least=1))

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        documents_by_place = check_restorable_documents(documents)
        if documents_by_place:
            await self._restore_documents(documents_by_place)

    @abstractmethod
    async def _put_document(self, place: Place, data: bytes, expected: int | None) -> Document: ...

    @abstractmethod
    async def _get_document(self, place: Place) -> Document | None: ...

    @abstractmethod
    async def _list_documents(self, listing: Listing) -> list[Document]: ...

    @abstractmethod
    async def _document_kinds(self, holder: str | None) -> list[str]: ...

    @abstractmethod
    async def _delete_document(self, place: Place, expected: int | None) -> bool: ...

    @abstractmethod
    async def _restore_documents(self, documents: Mapping[Place, Document]) -> None: ...


# Branches; see `contracts.Branchable`


S = TypeVar("S")

# Before every expiry. A store that takes this for the present time shows expired conversations too.
BEFORE_EVERYTHING = datetime.min.replace(tzinfo=UTC)


def frozen_in_time(store: S) -> S:
    """Return a view of the store, for reading only, in which nothing has expired."""
    view = copy(store)
    setattr(view, "now", lambda: BEFORE_EVERYTHING)  # noqa: B010 -- a method cannot be assigned to
    return view


def last_sequence(conversation_id: str, end: LogEnd | None) -> int:
    """Return the last assigned sequence. Raise `ConversationNotFound` where there is no log."""
    if end is None:
        raise ConversationNotFound(conversation_id)
    return end.next_sequence - 1
