"""`Idempotency-Key`: execute a repeated write once and return the same response.

Messages without an id get one derived from owner, key and index, so that every process recognises a repeat,
even after a restart. The store keeps a digest of key and body for a day, to refuse the same key with another
body.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from aforesaid.contracts import Appended, ConversationStore
from aforesaid.errors import DocumentConflict, InvalidInput, KeyReused
from aforesaid.model.messages import Message
from aforesaid.server.endpoints import Call

KIND = "idempotency"
KEY_LIFETIME = timedelta(days=1)
LONGEST_KEY = 255
_DIGEST = 32
_CLEANUP_BATCH = 50
"""Keys to check for expiry in one cleanup."""

Append = Callable[[Sequence[Message]], Awaitable[Appended]]


def has_idempotency_key(call: Call[Any, Any]) -> bool:
    """Return whether the request has an `Idempotency-Key`."""
    return b"idempotency-key" in call.headers


async def append_once(
    call: Call[Any, Any], messages: Sequence[Message], append: Append, *, conversation_id: str | None = None
) -> Appended:
    """Append, or return the result of an earlier request with the same key.

    The key's document stores the conversation if the request does not name it.
    """
    header = call.headers.get(b"idempotency-key")
    if header is None:
        return await append(messages)
    manager, key = call.manager, _fingerprint(call.manager.owner, header)
    # The path is included: the same key on another route is another request.
    digest = sha256(header + b"\0" + call.request.scope["raw_path"] + b"\0" + call.raw).digest()
    identified = with_ids(messages, key)
    earlier = await _claim(manager.store, key, digest)
    if earlier:
        return _as_first_response(await manager.append(earlier, identified))
    stored = await append(identified)
    if conversation_id is not None:
        # An earlier attempt may have stored the messages without a key.
        return _as_first_response(stored)
    await manager.store.put_document(KIND, key, digest + stored.conversation.id.encode())
    return stored if earlier is None else _as_first_response(stored)


def with_ids(messages: Sequence[Message], key: str) -> list[Message]:
    """Return the messages, with derived ids for messages without one."""
    return [
        message if message.message_id is not None else message.with_(message_id=f"once~{key}~{at}")
        for at, message in enumerate(messages)
    ]


def _as_first_response(stored: Appended) -> Appended:
    """Report known entries as new, so that a repeat gets the first response."""
    entries = sorted((*stored.known, *stored.new), key=lambda entry: entry.sequence)
    return Appended(conversation=stored.conversation, new=tuple(entries))


def _fingerprint(owner: str, header: bytes) -> str:
    if not 1 <= len(header) <= LONGEST_KEY:
        raise InvalidInput(
            f"Idempotency-Key must have 1 to {LONGEST_KEY} characters", field="Idempotency-Key"
        )
    # The length separates owner and key, so that different pairs never give the same bytes.
    return sha256(b"%d:%b%b" % (len(owner.encode()), owner.encode(), header)).hexdigest()[:40]


async def _claim(store: ConversationStore, key: str, digest: bytes) -> str | None:
    """Claim a key. Return None if it is new, else the conversation of the first request, empty if unknown.

    Raises `KeyReused` for another body.
    """
    try:
        await store.put_document(KIND, key, digest, expected_version=0)
    except DocumentConflict:
        found = await store.get_document(KIND, key)
        if found is not None and found.data[:_DIGEST] != digest:
            raise KeyReused from None
        return "" if found is None else found.data[_DIGEST:].decode()
    if key.startswith("0"):  # clean up on one of sixteen requests
        await _delete_expired(store, key)
    return None


async def _delete_expired(store: ConversationStore, key: str) -> None:
    """Delete some expired keys. Keys are random, so every key is checked eventually."""
    for document in await store.documents(KIND, after=key, limit=_CLEANUP_BATCH):
        if document.updated_at < store.now() - KEY_LIFETIME:
            await store.delete_document(KIND, document.key)
