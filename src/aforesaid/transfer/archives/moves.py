"""Move conversations between a store and its archives.

The archive is on disk and verified before the conversation leaves the store.
"""

import asyncio
import io
import logging
from collections.abc import Mapping
from datetime import datetime

from aforesaid._internal.tasks import finished
from aforesaid.contracts import ConversationStore
from aforesaid.errors import (
    Conflict,
    ConversationNotFound,
    KeyUnavailable,
    RevisionConflict,
    StoreDamaged,
    StoreForeign,
)
from aforesaid.model.conversations import Conversation, expiry, is_expired
from aforesaid.stores.blobs import BlobStore
from aforesaid.telemetry import describe
from aforesaid.transfer.archives.files import Archive, pack, unpack
from aforesaid.transfer.archives.folder import OwnerArchives

log = logging.getLogger("aforesaid.archives")


async def archive(
    store: ConversationStore, archives: OwnerArchives, conversation_id: str, *, blobs: BlobStore | None = None
) -> Archive:
    """Move a conversation from the store to an archive. Idempotent.

    Raise `RevisionConflict` if the conversation changes meanwhile, `StoreDamaged` if a message is
    unreadable (the archive would lose it), `Conflict` if an archive has messages that the store lacks, and
    `StoreUnavailable` if the store lacks acknowledged turns. The conversation then stays in the store.
    """
    authoritative = await store.authoritative()
    async with archives.locked():
        record = await authoritative.get(conversation_id)
        # In both places: a crash interrupted an earlier move. Finish it before archiving again.
        if record is not None and await archives.count(record.id):
            if not await _finish_move(authoritative, archives, record.id, blobs):
                raise Conflict(f"the archive of conversation {record.id} has messages that the store lacks")
            record = await authoritative.get(conversation_id)
        if record is None:
            return await _existing_archive(archives, conversation_id)
        try:
            # An archive is complete by itself: it contains what a branch shares with other conversations.
            bare = record.with_(lineage=())
            head, content = await _pack_conversation(authoritative, bare, archives, blobs)
        except ConversationNotFound:
            return await _existing_archive(archives, conversation_id)
        # A cancellation between write and delete would leave the conversation in both places.
        return await finished(_move(authoritative, archives, record, head, content, blobs))


async def _move(
    store: ConversationStore,
    archives: OwnerArchives,
    record: Conversation,
    head: Archive,
    content: bytes,
    blobs: BlobStore | None,
) -> Archive:
    written = await archives.put(head, content)
    try:
        await store.delete(record.id, expected_revision=record.revision)
    except RevisionConflict:
        # A turn arrived after packing, so the archive lacks it. The conversation stays in the store.
        await archives.delete(record.id)
        raise
    # After the record: a sweep removes images without a conversation if this process ends here.
    if blobs is not None:
        await blobs.delete(record.id)
    return written


async def _existing_archive(archives: OwnerArchives, conversation_id: str) -> Archive:
    existing = await archives.get(conversation_id)
    if existing is None:
        raise ConversationNotFound(conversation_id)
    return existing


async def restore(
    store: ConversationStore, archives: OwnerArchives, conversation_id: str, *, blobs: BlobStore | None = None
) -> Conversation:
    """Move a conversation back into the store: record, entries, documents, images and unused sessions.

    A conversation that expired in the archive gets its lifetime again.
    """
    async with archives.locked():
        _, content = await archives.read(conversation_id)
        return await finished(_restore_content(store, archives, conversation_id, content, blobs))


async def _restore_content(
    store: ConversationStore,
    archives: OwnerArchives,
    conversation_id: str,
    content: bytes,
    blobs: BlobStore | None,
) -> Conversation:
    from aforesaid.transfer.imports import restore_one

    lines, images = await asyncio.to_thread(unpack, content)
    record = await restore_one(io.BytesIO(lines), store, revive=lambda one: _renew_expiry(one, store.now()))
    await _put_images(blobs, conversation_id, images)  # last: a sweep removes images without a conversation
    await archives.delete(conversation_id)
    return record


async def _put_images(blobs: BlobStore | None, conversation_id: str, images: Mapping[str, bytes]) -> None:
    if blobs is not None:
        for sha256, data in images.items():
            await blobs.put(conversation_id, sha256, data)


async def finish_interrupted(
    store: ConversationStore, archives: OwnerArchives, *, blobs: BlobStore | None = None
) -> None:
    """Remove archives of conversations that are in the store.

    A crash while a conversation is moved, in either direction, leaves it in both places. The store has all
    of it then; images and sessions may be in the archive only.
    """
    authoritative = await store.authoritative()
    for conversation_id in [one.conversation_id for one in await archives.list()]:
        # Most archives have no conversation in the store: check without the lock first.
        if await authoritative.get(conversation_id) is None:
            continue
        async with archives.locked():
            if not await archives.count(conversation_id):
                continue  # the move that was under way is complete
            try:
                done = await _finish_move(authoritative, archives, conversation_id, blobs)
            except (KeyUnavailable, StoreDamaged, StoreForeign) as error:
                log.warning(
                    "the archive of conversation %s is unreadable: %s", conversation_id, describe(error)
                )
                continue
            if not done:
                log.warning("the archive of conversation %s differs from the store", conversation_id)


async def _finish_move(
    store: ConversationStore, archives: OwnerArchives, conversation_id: str, blobs: BlobStore | None
) -> bool:
    """Finish restoring an archive whose conversation is in the store; the caller holds the lock.

    Return False, and change nothing, if the store lacks messages of the archive and has others.
    """
    from aforesaid.transfer.imports import has_all_entries

    if await store.get(conversation_id) is None:
        return True  # it was deleted, or archived again, before the lock was taken
    _, content = await archives.read(conversation_id)
    try:
        await finished(_restore_content(store, archives, conversation_id, content, blobs))
    except Conflict:  # the conversation was changed since
        lines, images = await asyncio.to_thread(unpack, content)
        if not await has_all_entries(io.BytesIO(lines), store):
            return False
        await _put_images(blobs, conversation_id, images)
        await archives.delete(conversation_id)
    return True


async def forget_copy(store: ConversationStore, archives: OwnerArchives, conversation_id: str) -> None:
    """Remove the archive of a conversation that is in the store.

    A crash or disk failure during archiving leaves such a copy.
    """
    if not await archives.count(conversation_id):
        return
    async with archives.locked():
        if await store.get(conversation_id) is not None:
            await archives.delete(conversation_id)


def _renew_expiry(record: Conversation, now: datetime) -> Conversation:
    return record.with_(expires_at=expiry(record.ttl, now=now)) if is_expired(record, now=now) else record


async def _pack_conversation(
    store: ConversationStore, record: Conversation, archives: OwnerArchives, blobs: BlobStore | None
) -> tuple[Archive, bytes]:
    from aforesaid.transfer.exports import export_one

    lines = io.BytesIO()
    report = await export_one(store, record, lines, owner=archives.owner)
    if report.unreadable:
        raise StoreDamaged(
            f"conversation {record.id} was not archived: {report.unreadable} of its {report.entries} "
            "messages are unreadable, and an archive would lose them"
        )
    if report.entries != record.message_count:
        await _check_unchanged(store, record, report.entries)
    images = {} if blobs is None else await _images(blobs, record.id)
    content = await asyncio.to_thread(pack, lines.getvalue(), images)
    head = Archive(
        conversation_id=record.id,
        owner=archives.key,
        archived_at=store.now(),
        last_activity=record.last_activity,
        revision=record.revision,
        messages=report.entries,
        documents=report.documents,
        blobs=len(images),
    )
    return head, content


async def _check_unchanged(store: ConversationStore, record: Conversation, found: int) -> None:
    """Raise `RevisionConflict` if the log changed, or `StoreDamaged` if it lacks messages."""
    now = await store.get(record.id)
    if now is None:
        raise ConversationNotFound(record.id)
    if now.revision != record.revision:
        raise RevisionConflict(record.id, expected=record.revision, actual=now.revision)
    raise StoreDamaged(
        f"conversation {record.id} was not archived: its record counts {record.message_count} messages, "
        f"but its log has {found}"
    )


async def _images(blobs: BlobStore, conversation_id: str) -> dict[str, bytes]:
    found = {sha256: await blobs.get(conversation_id, sha256) for sha256 in await blobs.list(conversation_id)}
    return {sha256: data for sha256, data in found.items() if data is not None}
