"""Documents in sorted sets: the owner's in their own slot, a conversation's in the slot of its log.

A document is one member, `kind NUL key NUL version:updated_at:data`, with score 0. Names contain no NUL, so
members sort by kind and then by key.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from aforesaid.contracts import Document, Listing, Place
from aforesaid.errors import DocumentConflict, StoreDamaged, shown
from aforesaid.stores.redis.values import moment_from, moment_of

Run: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a script by name, on the documents' key."""


class Documents:
    """The documents of an owner or a conversation."""

    def __init__(self, run: Run, now: datetime) -> None:
        self._run = run
        self._now = now

    async def put(self, place: Place, data: bytes, *, expected: int | None) -> Document:
        status, version = await self._call("put_document", _bounds(place), _text(expected), data)
        if status == b"conflict":
            assert expected is not None, "only a caller with an expected version is refused"
            raise DocumentConflict(place.kind, place.key, expected=expected, actual=int(version))
        return place.document(data, version=int(version), updated_at=self._now)

    async def get(self, place: Place) -> Document | None:
        start = _bounds(place)
        _, members = await self._call("read_documents", b"[" + start, b"(" + start[:-1] + b"\1", 1)
        return _document(members[0], place.conversation_id) if members else None

    async def page(self, listing: Listing) -> list[Document]:
        kind = listing.kind.encode()
        first = b"(%b\0%b\1" % (kind, listing.after.encode()) if listing.after else b"[%b\0" % kind
        _, members = await self._call("read_documents", first, b"(%b\1" % kind, listing.limit)
        return [_document(member, listing.conversation_id) for member in members]

    async def kinds(self) -> list[str]:
        _, kinds = await self._call("list_document_kinds")
        return [kind.decode() for kind in kinds]

    async def delete(self, place: Place, *, expected: int | None) -> bool:
        status, version = await self._call("delete_document", _bounds(place), _text(expected))
        if status == b"conflict":
            place.check_version(int(version), expected)
        return int(version) > 0

    async def restore(self, documents: Mapping[Place, Document]) -> None:
        values: list[bytes | str | int] = []
        for place, document in documents.items():
            values += [_bounds(place), document.version, moment_of(document.updated_at), document.data]
        await self._call("restore_documents", *values)

    async def _call(self, script: str, *values: bytes | str | int) -> Any:
        return await self._run(script, moment_of(self._now), *values)


def by_kind(flat: Sequence[Any]) -> dict[str, int]:
    """Parse the counts of `counting.lua`."""
    return {kind.decode(): int(number) for kind, number in zip(flat[::2], flat[1::2], strict=True)}


def _bounds(place: Place) -> bytes:
    """Return the unique prefix of a document's member."""
    # With the NUL at the end, so that no key is a prefix of another.
    return b"%b\0%b\0" % (place.kind.encode(), place.key.encode())


def _text(expected: int | None) -> str:
    return "" if expected is None else str(expected)


def _document(member: bytes, conversation_id: str | None) -> Document:
    try:
        kind, key, rest = member.split(b"\0", 2)
        version, updated_at, data = rest.split(b":", 2)
        return Document(
            kind=kind.decode(),
            key=key.decode(),
            data=data,
            version=int(version),
            updated_at=moment_from(updated_at),
            conversation_id=conversation_id,
        )
    except (ValueError, OverflowError) as error:
        raise StoreDamaged(f"a stored document is damaged: {shown(member[:200])}") from error
