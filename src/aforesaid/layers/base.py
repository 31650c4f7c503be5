"""What layers share: pass-through wrappers, sizes of messages, and the marks of stores that were reached."""

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from aforesaid.contracts import (
    Appended,
    Backend,
    Branchable,
    ConversationStore,
    Document,
    Entry,
    Position,
    Tally,
    Wrapper,
)
from aforesaid.model.conversations import Changes, Conversation, Page, Query
from aforesaid.model.messages import Message, is_immutable
from aforesaid.telemetry import event

# Pass-through wrappers: a layer derives from them and overrides only what it changes.


class BackendWrapper(Wrapper, Backend):
    """A backend that forwards every call to `inner`."""

    inner: Backend

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()

    def of(self, owner: str) -> ConversationStore:
        return self.inner.of(owner)

    def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        return self.inner.owners(ignored_kinds=ignored_kinds)

    async def purge_expired(self, now: datetime | None = None) -> int:
        return await self.inner.purge_expired(now)


class StoreWrapper(Wrapper, ConversationStore):
    """One owner's store that forwards every call to `inner`.

    `load` and `save` are inherited, not forwarded: they call the other methods, which a layer may override.
    """

    inner: ConversationStore

    @property
    def owner(self) -> str:
        return self.inner.owner

    def now(self) -> datetime:
        return self.inner.now()

    @property
    def degraded(self) -> bool:
        return self.inner.degraded

    async def authoritative(self) -> Self:
        return self.with_inner(await self.inner.authoritative())

    # Records

    async def create(self, conversation: Conversation) -> Conversation:
        return await self.inner.create(conversation)

    async def get(self, conversation_id: str) -> Conversation | None:
        return await self.inner.get(conversation_id)

    async def update(
        self, conversation_id: str, changes: Changes, *, expected_revision: int | None = None
    ) -> Conversation:
        return await self.inner.update(conversation_id, changes, expected_revision=expected_revision)

    async def find(self, query: Query) -> Page:
        return await self.inner.find(query)

    async def delete(self, conversation_id: str, *, expected_revision: int | None = None) -> Tally:
        return await self.inner.delete(conversation_id, expected_revision=expected_revision)

    # Sessions

    async def resume(
        self, session_id: str, fresh: Conversation, *, active_since: datetime | None = None
    ) -> Conversation:
        return await self.inner.resume(session_id, fresh, active_since=active_since)

    async def session(self, session_id: str) -> Conversation | None:
        return await self.inner.session(session_id)

    async def bind(self, session_id: str, conversation_id: str) -> None:
        await self.inner.bind(session_id, conversation_id)

    async def unbind(self, session_id: str) -> None:
        await self.inner.unbind(session_id)

    async def sessions(self, conversation_id: str) -> list[str]:
        return await self.inner.sessions(conversation_id)

    # The log

    async def append(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self.inner.append(conversation_id, messages, expected_revision=expected_revision)

    async def rewrite(
        self, conversation_id: str, messages: Sequence[Message], *, expected_revision: int | None = None
    ) -> Appended:
        return await self.inner.rewrite(conversation_id, messages, expected_revision=expected_revision)

    async def tail(self, conversation_id: str, *, limit: int, before: Position | None = None) -> list[Entry]:
        return await self.inner.tail(conversation_id, limit=limit, before=before)

    async def recent(
        self, conversation_id: str, *, limit: int, before: Position | None = None
    ) -> list[Entry]:
        return await self.inner.recent(conversation_id, limit=limit, before=before)

    async def page(self, conversation_id: str, *, limit: int, offset: int = 0) -> list[Entry]:
        return await self.inner.page(conversation_id, limit=limit, offset=offset)

    async def entry(self, conversation_id: str, message_id: str) -> Entry | None:
        return await self.inner.entry(conversation_id, message_id)

    async def replace(
        self, conversation_id: str, message: Message, *, expected_revision: int | None = None
    ) -> Entry:
        return await self.inner.replace(conversation_id, message, expected_revision=expected_revision)

    async def restore(
        self, conversation: Conversation, entries: Sequence[Entry], *, expected_revision: int | None = None
    ) -> None:
        await self.inner.restore(conversation, entries, expected_revision=expected_revision)

    # Documents

    async def put_document(
        self,
        kind: str,
        key: str,
        data: bytes,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> Document:
        return await self.inner.put_document(
            kind, key, data, conversation_id=conversation_id, expected_version=expected_version
        )

    async def get_document(
        self, kind: str, key: str, *, conversation_id: str | None = None
    ) -> Document | None:
        return await self.inner.get_document(kind, key, conversation_id=conversation_id)

    async def documents(
        self, kind: str, *, conversation_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[Document]:
        return await self.inner.documents(kind, conversation_id=conversation_id, after=after, limit=limit)

    async def document_kinds(self, *, conversation_id: str | None = None) -> list[str]:
        return await self.inner.document_kinds(conversation_id=conversation_id)

    async def delete_document(
        self,
        kind: str,
        key: str,
        *,
        conversation_id: str | None = None,
        expected_version: int | None = None,
    ) -> bool:
        return await self.inner.delete_document(
            kind, key, conversation_id=conversation_id, expected_version=expected_version
        )

    async def restore_documents(self, documents: Sequence[Document]) -> None:
        await self.inner.restore_documents(documents)

    # Retention

    async def purge_expired(self) -> int:
        return await self.inner.purge_expired()

    async def expired(self, *, by: datetime, limit: int = 100) -> list[Conversation]:
        return await self.inner.expired(by=by, limit=limit)

    # Branches, where `inner` is `Branchable`

    def including_expired(self) -> Self:
        return self.with_inner(self.inner_capability(Branchable).including_expired())

    async def family(self, root_id: str) -> list[Conversation]:
        return await self.inner_capability(Branchable).family(root_id)

    async def kept_expired(self) -> list[Conversation]:
        return await self.inner_capability(Branchable).kept_expired()

    async def last_sequence(self, conversation_id: str) -> int:
        return await self.inner_capability(Branchable).last_sequence(conversation_id)

    async def clear(self) -> Tally:
        return await self.inner.clear()

    async def tally(self, conversation_id: str | None = None) -> Tally:
        return await self.inner.tally(conversation_id)


# Approximate sizes and private copies of messages, for layers that keep messages in memory.


# Bytes of a message or record besides its text.
OVERHEAD = 512


def size_of(messages: Iterable[Message]) -> int:
    """Return the approximate number of bytes that the messages occupy in memory."""
    return sum(OVERHEAD + _text_size(message) for message in messages)


def _text_size(message: Message) -> int:
    spoken = 0 if message.speech is None else len(message.speech.spoken or "")
    return _length(message.content) + _length(message.extra) + spoken


def private_copies(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, mutable content copied. Immutable messages are shared, because copying is slow."""
    return [entry if is_immutable(entry.message) else _copy(entry) for entry in entries]


def _copy(entry: Entry) -> Entry:
    message = entry.message
    copy = replace(message, content=deepcopy(message.content), extra=deepcopy(message.extra))
    return replace(entry, message=copy)


def _length(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case list() | tuple():
            return 64 + sum(map(_length, value))
        case dict():
            return 64 + sum(len(key) + _length(item) for key, item in value.items())
    return 16


# Record on disk which stores and servers this machine has reached.
#
# A mistyped URL and an unavailable server look the same. A server that was reached before may be
# unavailable at start; for one that was never reached, opening raises an error. The mark is a file next to
# the store's spool folder. Its name is a digest, so it contains no address and no secret. It contains the
# identity of the store's data, if the store has one: other data at the same address is an error, too,
# because conversations that were stored from this machine would look as if they never existed.


log = logging.getLogger("aforesaid.reached")


class ReachedMark:
    """The mark of one store. Its methods block: call them on a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def is_set(self) -> bool:
        return self.path.is_file()

    def identity(self) -> str:
        """Return the identity of the data that this machine has reached; empty if it is not known."""
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def set(self, identity: str = "") -> None:
        """Write the mark. Log a disk error instead of raising it, because the store itself works."""
        try:
            if not self.is_set() or (identity and self.identity() != identity):
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self.path.touch(mode=0o600)
                self.path.write_text(identity, encoding="utf-8")
        except OSError as error:
            event(
                log,
                logging.WARNING,
                "reached_mark_unusable",
                f"{self.path} cannot be written ({error.strerror}): the next start requires the store",
            )
