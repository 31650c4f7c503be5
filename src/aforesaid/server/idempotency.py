"""`Idempotency-Key`: a write that is sent again is done once and answered alike. Below: the manager.

Messages without an id get one that follows from the owner, the key and their place, so that a repeat finds
them stored, in this process or another, now or after a restart. What was sent under a key is remembered for
a day, as a digest that only the key can be compared with: the same key with another body is refused.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

from aforesaid.contracts import Appended, ConversationStore
from aforesaid.errors import DocumentConflict, InvalidInput, KeyReused
from aforesaid.model.messages import Message
from aforesaid.server.calls import Call

KIND = "idempotency"
REMEMBERED = timedelta(days=1)
LONGEST_KEY = 255
_DIGEST = 32
_LOOKED_AT = 50
"""Other keys that are looked at when one is remembered, to forget those that are old."""

Append = Callable[[Sequence[Message]], Awaitable[Appended]]


def may_be_repeated(call: Call[Any, Any]) -> bool:
    """Whether the request has a key by which it is known again."""
    return b"idempotency-key" in call.headers


async def once(
    call: Call[Any, Any], messages: Sequence[Message], append: Append, *, conversation_id: str | None = None
) -> Appended:
    """Append, or find that it was done before under the request's key.

    Where the request does not name the conversation, the key remembers it.
    """
    header = call.headers.get(b"idempotency-key")
    if header is None:
        return await append(messages)
    manager, key = call.manager, _fingerprint(call.manager.owner, header)
    digest = sha256(header + b"\0" + call.request.scope["raw_path"] + b"\0" + call.raw).digest()
    given = with_ids(messages, key)
    earlier = await _claim(manager.store, key, digest)
    if earlier:
        return _alike(await manager.append(earlier, given))
    stored = await append(given)
    if conversation_id is not None:
        # The first attempt may have come without its key: what is known may be what it stored.
        return _alike(stored)
    await manager.store.put_document(KIND, key, digest + stored.conversation.id.encode())
    return stored if earlier is None else _alike(stored)


def with_ids(messages: Sequence[Message], key: str) -> list[Message]:
    """The messages, those without an id with one that follows from the key and their place."""
    return [
        message if message.message_id is not None else message.with_(message_id=f"once~{key}~{at}")
        for at, message in enumerate(messages)
    ]


def _alike(stored: Appended) -> Appended:
    """What was known is told as what is new: the answer to a repeat is that to the first."""
    entries = sorted((*stored.known, *stored.new), key=lambda entry: entry.sequence)
    return Appended(conversation=stored.conversation, new=tuple(entries))


def _fingerprint(owner: str, header: bytes) -> str:
    if not 1 <= len(header) <= LONGEST_KEY:
        raise InvalidInput(
            f"Idempotency-Key must have 1 to {LONGEST_KEY} characters", field="Idempotency-Key"
        )
    return sha256(b"%d:%b%b" % (len(owner.encode()), owner.encode(), header)).hexdigest()[:40]


async def _claim(store: ConversationStore, key: str, digest: bytes) -> str | None:
    """The conversation that this was stored in before, empty where none is known; None where the key is new.

    Refuses another body under the key.
    """
    try:
        await store.put_document(KIND, key, digest, expected_version=0)
    except DocumentConflict:
        found = await store.get_document(KIND, key)
        if found is not None and found.data[:_DIGEST] != digest:
            raise KeyReused from None
        return "" if found is None else found.data[_DIGEST:].decode()
    if key.startswith("0"):  # now and then
        await _forget_old(store, key)
    return None


async def _forget_old(store: ConversationStore, key: str) -> None:
    """Forget some old keys. Their order is as good as random, so that in time each is looked at."""
    for document in await store.documents(KIND, after=key, limit=_LOOKED_AT):
        if document.updated_at < store.now() - REMEMBERED:
            await store.delete_document(KIND, document.key)
