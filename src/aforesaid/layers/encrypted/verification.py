"""Compare encrypted logs with their heads, and repair those that were altered."""

from msgspec import Struct

from aforesaid.contracts.listing import every_record
from aforesaid.layers.encrypted import EncryptedBackend, EncryptedStore
from aforesaid.model.conversations import Query


class Violated(Struct, frozen=True, kw_only=True):
    """A conversation whose log is not as it was written."""

    owner: str
    conversation_id: str
    readable: int
    violations: int
    repaired: bool = False


class Verification(Struct, frozen=True, kw_only=True):
    """What a verification found."""

    owners: int = 0
    conversations: int = 0
    violated: tuple[Violated, ...] = ()


async def verify(
    backend: EncryptedBackend, *, owner: str | None = None, repair: bool = False
) -> Verification:
    """Read every log of one owner, or of all, and compare it with its head.

    `repair` keeps the messages that are proven, in new places, and removes everything else of the log. A log
    of which nothing is proven is left as it is: a backup may have its head.
    """
    owners = conversations = 0
    violated: list[Violated] = []
    names = [owner] if owner is not None else [name async for name in backend.owners()]
    for name in names:
        owners += 1
        async for record in every_record(backend.of(name)):
            conversations += 1
            store: EncryptedStore = await backend.of(name).authoritative()
            found = await _verified(store, name, record.id, repair=repair)
            violated += [] if found is None else [found]
    return Verification(owners=owners, conversations=conversations, violated=tuple(violated))


async def verify_sample(backend: EncryptedBackend, *, owners: int, messages: int) -> Verification:
    """Compare the end of the latest conversation of some owners with its head.

    The cost is bounded: at most `owners` conversations, and of each the last `messages`. Only a log that
    fails is read completely.
    """
    sampled = conversations = 0
    violated: list[Violated] = []
    async for owner in backend.owners():
        if sampled == owners:
            break
        sampled += 1
        store = backend.of(owner)
        for record in (await store.find(Query(limit=1))).conversations:
            conversations += 1
            entries = await store.tail(record.id, limit=messages)
            readable = sum(entry.unreadable is None for entry in entries)
            if readable < len(entries):
                violated.append(
                    Violated(
                        owner=owner,
                        conversation_id=record.id,
                        readable=readable,
                        violations=len(entries) - readable,
                    )
                )
    return Verification(owners=sampled, conversations=conversations, violated=tuple(violated))


async def _verified(
    store: EncryptedStore, owner: str, conversation_id: str, *, repair: bool
) -> Violated | None:
    record = await store.get(conversation_id)
    whole = await store.whole(conversation_id)
    if record is None or not whole.violations:
        return None
    proven = [entry.message for entry in whole.entries if entry.unreadable is None]
    if repair and proven:
        await store.rewrite(conversation_id, proven, expected_revision=record.revision)
    return Violated(
        owner=owner,
        conversation_id=conversation_id,
        readable=len(proven),
        violations=whole.violations,
        repaired=repair and bool(proven),
    )
