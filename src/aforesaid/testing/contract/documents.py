"""Documents: data next to the log, of an owner or derived from a conversation."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from aforesaid.contracts import (
    LARGEST_DOCUMENT,
    LONGEST_KEY,
    LONGEST_KIND,
    Backend,
    ConversationStore,
    Document,
)
from aforesaid.errors import ConversationNotFound, DocumentConflict, InvalidInput, StoreClosed
from aforesaid.model.conversations import Conversation
from aforesaid.model.ids import new_id
from aforesaid.testing.contract.base import Contract, FixedClock, new_conversation, user

HOUR = timedelta(hours=1)
MEGABYTE = bytes(range(256)) * 4096

# Keys in many alphabets, some with a meaning somewhere.
HOSTILE = (
    " ",
    "a",
    "a:b",
    "*",
    "{t}",
    "a\n\r\t",
    "%",
    "_",
    "'; DROP TABLE documents; --",
    "..",
    "../a/b",
    "\x01",
    "a\x01",
    "\x7f",
    "\u2028",
    "é",
    "e\u0301",
    "ä" * (LONGEST_KEY // 2),
    "\ue000",
    "\uffff",
    "😀",
    "\U0010ffff",
)


class DocumentsContract(Contract):
    """`put_document`, `get_document`, `documents`, `delete_document`, `restore_documents`,
    `document_kinds`.
    """

    @pytest.fixture(params=["owner", "conversation"])
    def holder(self, request: pytest.FixtureRequest, conversation: Conversation) -> str | None:
        """The document's holder: None for the owner, or a conversation's id."""
        return conversation.id if request.param == "conversation" else None

    async def test_put_then_get(
        self, store: ConversationStore, clock: FixedClock, holder: str | None
    ) -> None:
        put = await store.put_document("note", "coffee", b"black", conversation_id=holder)
        assert put == Document(
            kind="note",
            key="coffee",
            data=b"black",
            version=1,
            updated_at=clock(),
            conversation_id=holder,
        )
        assert await store.get_document("note", "coffee", conversation_id=holder) == put
        assert await store.documents("note", conversation_id=holder) == [put]
        assert await store.document_kinds(conversation_id=holder) == ["note"]

    async def test_a_missing_document_is_none(self, store: ConversationStore, holder: str | None) -> None:
        await store.put_document("note", "coffee", b"black", conversation_id=holder)
        assert await store.get_document("note", "tea", conversation_id=holder) is None
        assert await store.get_document("notes", "coffee", conversation_id=holder) is None
        assert await store.documents("notes", conversation_id=holder) == []
        assert await store.delete_document("note", "tea", conversation_id=holder) is False

    async def test_each_put_increments_the_version_and_updates_the_time(
        self, store: ConversationStore, clock: FixedClock, holder: str | None
    ) -> None:
        for version in range(1, 5):
            put = await store.put_document("note", "coffee", b"%d" % version, conversation_id=holder)
            assert (put.version, put.updated_at) == (version, clock())
            assert await store.get_document("note", "coffee", conversation_id=holder) == put
            clock.advance(HOUR)

    async def test_a_deleted_document_starts_again_at_version_one(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        for _ in range(2):
            await store.put_document("note", "coffee", b"a", conversation_id=holder)
        assert await store.delete_document("note", "coffee", conversation_id=holder) is True
        assert await store.get_document("note", "coffee", conversation_id=holder) is None
        assert await store.document_kinds(conversation_id=holder) == []
        assert await store.delete_document("note", "coffee", conversation_id=holder) is False
        put = await store.put_document("note", "coffee", b"b", conversation_id=holder, expected_version=0)
        assert put.version == 1

    async def test_put_checks_the_expected_version(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        with pytest.raises(DocumentConflict) as refused:
            await store.put_document("note", "k", b"1", conversation_id=holder, expected_version=1)
        assert (refused.value.expected, refused.value.actual) == (1, 0)
        await store.put_document("note", "k", b"1", conversation_id=holder, expected_version=0)
        second = await store.put_document("note", "k", b"2", conversation_id=holder, expected_version=1)
        for wrong in (0, 1, 3, 2**53):
            with pytest.raises(DocumentConflict) as refused:
                await store.put_document("note", "k", b"x", conversation_id=holder, expected_version=wrong)
            assert (refused.value.expected, refused.value.actual) == (wrong, 2)
            assert (refused.value.kind, refused.value.key) == ("note", "k")
        assert await store.get_document("note", "k", conversation_id=holder) == second

    async def test_delete_checks_the_expected_version(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        put = await store.put_document("note", "k", b"1", conversation_id=holder)
        with pytest.raises(DocumentConflict):
            await store.delete_document("note", "k", conversation_id=holder, expected_version=2)
        assert await store.get_document("note", "k", conversation_id=holder) == put
        for deleted in (True, False):
            done = await store.delete_document("note", "k", conversation_id=holder, expected_version=1)
            assert done is deleted

    async def test_one_of_many_concurrent_creators_wins(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        async def make(number: int) -> Document:
            data = b"%d" % number
            return await store.put_document("key", "k", data, conversation_id=holder, expected_version=0)

        results = await asyncio.gather(*(make(number) for number in range(20)), return_exceptions=True)
        (winner,) = [result for result in results if isinstance(result, Document)]
        assert sum(isinstance(result, DocumentConflict) for result in results) == 19
        assert await store.get_document("key", "k", conversation_id=holder) == winner

    async def test_concurrent_increments_with_expected_versions_are_exact(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        """Writers that increment a counter with the version they read lose no increment."""
        await store.put_document("count", "n", b"0", conversation_id=holder)

        async def raise_by_one() -> None:
            while True:
                read = await store.get_document("count", "n", conversation_id=holder)
                assert read is not None
                more = b"%d" % (int(read.data) + 1)
                try:
                    await store.put_document(
                        "count", "n", more, conversation_id=holder, expected_version=read.version
                    )
                except DocumentConflict:
                    continue
                return

        await asyncio.gather(*(raise_by_one() for _ in range(8)))
        read = await store.get_document("count", "n", conversation_id=holder)
        assert read is not None
        assert (read.data, read.version) == (b"8", 9)

    async def test_unconditional_concurrent_puts_all_increment_the_version(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        puts = [store.put_document("n", "k", b"%d" % n, conversation_id=holder) for n in range(20)]
        versions = {put.version: put for put in await asyncio.gather(*puts)}
        assert sorted(versions) == list(range(1, 21))
        assert await store.get_document("n", "k", conversation_id=holder) == versions[20]

    @pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xfe\0{", MEGABYTE], ids=lambda data: str(len(data)))
    async def test_any_bytes_read_back_equal(
        self, store: ConversationStore, holder: str | None, data: bytes
    ) -> None:
        await store.put_document("blob", "k", data, conversation_id=holder)
        read = await store.get_document("blob", "k", conversation_id=holder)
        assert read is not None
        assert read.data == data
        (listed,) = await store.documents("blob", conversation_id=holder)
        assert listed == read

    async def test_keys_are_opaque(self, store: ConversationStore, holder: str | None) -> None:
        for key in HOSTILE:
            await store.put_document("k", key, key.encode(), conversation_id=holder, expected_version=0)
        listed = await store.documents("k", conversation_id=holder)
        assert [document.key for document in listed] == sorted(HOSTILE)
        assert all(document.data == document.key.encode() for document in listed)
        for key in HOSTILE:
            read = await store.get_document("k", key, conversation_id=holder)
            assert read is not None
            assert read.key == key
            assert await store.delete_document("k", key, conversation_id=holder, expected_version=1)
        assert await store.documents("k", conversation_id=holder) == []

    async def test_kinds_are_separate(self, store: ConversationStore, holder: str | None) -> None:
        kinds = ["a", "a/b", "a\x01", "ab", "vectors/mini:lm {x}", "é" * (LONGEST_KIND // 2)]
        for kind in kinds:
            await store.put_document(kind, "b/k", kind.encode(), conversation_id=holder)
        assert await store.document_kinds(conversation_id=holder) == sorted(kinds)
        for kind in kinds:
            (one,) = await store.documents(kind, conversation_id=holder)
            assert (one.kind, one.data) == (kind, kind.encode())
        await store.delete_document("a", "b/k", conversation_id=holder)
        assert await store.document_kinds(conversation_id=holder) == sorted(kinds)[1:]

    async def test_documents_are_listed_in_pages(self, store: ConversationStore, holder: str | None) -> None:
        keys = [f"{number:03}" for number in range(25)]
        for key in reversed(keys):
            await store.put_document("n", key, b"", conversation_id=holder)
        await store.put_document("m", "zzz", b"", conversation_id=holder)
        found: list[str] = []
        after = None
        while page := await store.documents("n", conversation_id=holder, after=after, limit=10):
            found += [document.key for document in page]
            after = page[-1].key
        assert found == keys
        assert len(await store.documents("n", conversation_id=holder)) == 25
        assert await store.documents("n", conversation_id=holder, limit=0) == []
        between = await store.documents("n", conversation_id=holder, after="0065", limit=1)
        assert [document.key for document in between] == ["007"]
        assert await store.documents("n", conversation_id=holder, after="x" * LONGEST_KEY) == []

    async def test_documents_of_owner_and_conversations_are_separate(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        other = await store.create(new_conversation(store))
        holders = (None, conversation.id, other.id)
        for number, holder in enumerate(holders):
            await store.put_document("n", "k", b"%d" % number, conversation_id=holder, expected_version=0)
        for number, holder in enumerate(holders):
            (read,) = await store.documents("n", conversation_id=holder)
            assert (read.data, read.conversation_id) == (b"%d" % number, holder)
        await store.delete_document("n", "k", conversation_id=other.id)
        assert await store.get_document("n", "k") is not None
        assert await store.get_document("n", "k", conversation_id=conversation.id) is not None

    async def test_documents_are_isolated_by_owner(
        self, backend: Backend, store: ConversationStore, conversation: Conversation
    ) -> None:
        mine = await store.put_document("n", "k", b"mine")
        await store.put_document("n", "k", b"derived", conversation_id=conversation.id)
        other = backend.of(f"other-{new_id()}")
        assert await other.get_document("n", "k") is None
        assert await other.documents("n") == []
        assert await other.document_kinds() == []
        assert await other.delete_document("n", "k") is False
        await other.put_document("n", "k", b"theirs", expected_version=0)
        for call in calls(conversation.id):
            with pytest.raises(ConversationNotFound):
                await call(other)
        assert await store.get_document("n", "k") == mine

    async def test_documents_need_an_existing_conversation(self, store: ConversationStore) -> None:
        missing = new_id()
        for call in calls(missing):
            with pytest.raises(ConversationNotFound) as refused:
                await call(store)
            assert refused.value.conversation_id == missing
        await store.create(new_conversation(store))
        assert await store.document_kinds() == []

    async def test_documents_are_deleted_with_their_conversation(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        await store.put_document("n", "k", b"x", conversation_id=conversation.id)
        await store.put_document("n", "k", b"mine")
        await store.delete(conversation.id)
        await store.create(conversation)
        assert await store.document_kinds(conversation_id=conversation.id) == []
        assert await store.get_document("n", "k", conversation_id=conversation.id) is None
        assert len(await store.documents("n")) == 1

    async def test_documents_are_deleted_by_a_rewrite_and_kept_by_an_append(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        put = await store.put_document("n", "k", b"x", conversation_id=conversation.id)
        await store.append(conversation.id, [user("more")])
        assert await store.get_document("n", "k", conversation_id=conversation.id) == put
        await store.rewrite(conversation.id, [])
        assert await store.get_document("n", "k", conversation_id=conversation.id) is None
        await store.put_document("n", "k", b"y", conversation_id=conversation.id, expected_version=0)
        await store.rewrite(conversation.id, [user("again")])
        assert await store.documents("n", conversation_id=conversation.id) == []

    async def test_documents_of_an_expired_conversation_are_not_returned(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        await store.put_document("n", "k", b"secret", conversation_id=record.id)
        clock.advance(HOUR)
        for call in calls(record.id):
            with pytest.raises(ConversationNotFound):
                await call(store)
        again = await store.create(new_conversation(store, ttl=HOUR))
        fresh = again.with_(id=record.id)
        await store.create(fresh)
        assert await store.document_kinds(conversation_id=record.id) == []

    async def test_documents_live_as_long_as_their_conversation(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        put = await store.put_document("n", "k", b"x", conversation_id=record.id)
        for _ in range(3):
            clock.advance(timedelta(minutes=50))
            await store.append(record.id, [user("still here")])
        assert await store.get_document("n", "k", conversation_id=record.id) == put

    async def test_documents_are_purged_with_their_conversation(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        await store.put_document("n", "k", b"x", conversation_id=record.id)
        await store.put_document("n", "k", b"mine")
        clock.advance(HOUR)
        assert await store.purge_expired() == 1
        clock.advance(-HOUR)
        with pytest.raises(ConversationNotFound):
            await store.get_document("n", "k", conversation_id=record.id)
        await store.create(record)
        assert await store.document_kinds(conversation_id=record.id) == []
        assert await store.document_kinds() == ["n"]

    async def test_restoring_a_conversation_keeps_its_documents(
        self, store: ConversationStore, conversation: Conversation
    ) -> None:
        put = await store.put_document("n", "k", b"x", conversation_id=conversation.id)
        await store.restore(conversation.with_(subject="other"), [])
        assert await store.get_document("n", "k", conversation_id=conversation.id) == put

    async def test_a_conversation_restored_over_an_expired_one_has_no_documents(
        self, store: ConversationStore, clock: FixedClock
    ) -> None:
        record = await store.create(new_conversation(store, ttl=HOUR))
        await store.put_document("n", "k", b"secret", conversation_id=record.id)
        clock.advance(HOUR)
        await store.restore(record.with_(expires_at=clock() + HOUR), [])
        assert await store.document_kinds(conversation_id=record.id) == []

    async def test_documents_are_restored_exactly(
        self, store: ConversationStore, clock: FixedClock, holder: str | None
    ) -> None:
        past = clock() - timedelta(days=900, microseconds=1)
        given = [
            Document(
                kind=kind, key=key, data=key.encode(), version=7, updated_at=past, conversation_id=holder
            )
            for kind in ("a", "b")
            for key in ("x", "y")
        ]
        await store.put_document("a", "x", b"in the way", conversation_id=holder)
        await store.restore_documents(given)
        await store.restore_documents(given)
        await store.restore_documents([])
        assert await store.documents("a", conversation_id=holder) == given[:2]
        assert await store.documents("b", conversation_id=holder) == given[2:]
        put = await store.put_document("b", "y", b"z", conversation_id=holder, expected_version=7)
        assert (put.version, put.updated_at) == (8, clock())

    async def test_invalid_documents_are_not_restored(
        self, store: ConversationStore, conversation: Conversation, clock: FixedClock
    ) -> None:
        good = Document(kind="a", key="x", data=b"", version=1, updated_at=clock())
        for bad in (
            replace(good, kind=""),
            replace(good, key="\0"),
            replace(good, data="text"),
            replace(good, version=0),
            replace(good, updated_at=clock().replace(tzinfo=None)),
            replace(good, conversation_id="x"),
            replace(good, conversation_id=conversation.id),
        ):
            with pytest.raises(InvalidInput):
                await store.restore_documents([good, bad])
        with pytest.raises(ConversationNotFound):
            await store.restore_documents([replace(good, conversation_id=new_id())])
        assert await store.document_kinds() == []

    async def test_an_owner_with_only_a_document_is_listed(self, backend: Backend) -> None:
        name = f"noted {{{new_id()}}}"
        store = backend.of(name)
        assert name not in [owner async for owner in backend.owners()]
        for put in (put_note, restore_note):
            await put(store)
            assert [owner async for owner in backend.owners()].count(name) == 1
            record = await store.create(new_conversation(store))
            assert [owner async for owner in backend.owners()].count(name) == 1
            await store.delete(record.id)
            await store.purge_expired()
            assert [owner async for owner in backend.owners()].count(name) == 1
            await store.delete_document("n", "k")
            assert name not in [owner async for owner in backend.owners()]

    async def test_owners_with_only_ignored_kinds_are_not_listed(self, backend: Backend) -> None:
        only, other, talking = (f"{name} {new_id()}" for name in ("only", "other", "talking"))
        for name in (only, other, talking):
            await put_note(backend.of(name))
        await backend.of(other).put_document("m", "k", b"data")
        record = await backend.of(talking).create(new_conversation(backend.of(talking)))

        async def left(*ignored_kinds: str) -> set[str]:
            return {owner async for owner in backend.owners(ignored_kinds=ignored_kinds)} & {
                only,
                other,
                talking,
            }

        assert await left("x") == {only, other, talking}
        assert await left("n") == {other, talking}
        assert await left("n", "m") == {talking}
        await backend.of(talking).delete(record.id)
        await backend.of(talking).purge_expired()
        assert await left("n", "m") == set()

    async def test_a_long_owner_name_is_listed_completely(self, backend: Backend) -> None:
        name = f"{new_id()} " + "ä" * 900
        await put_note(backend.of(name))
        assert name in [owner async for owner in backend.owners()]
        await backend.of(name).delete_document("n", "k")

    async def test_invalid_names_and_data_are_refused(
        self, store: ConversationStore, holder: str | None
    ) -> None:
        kept = await store.put_document("n", "k", b"", conversation_id=holder)
        for wrong in ("", "\0", "a\0b", "\ud800", 7, None, b"k", "ä" * LONGEST_KEY):
            for field, kind, key in (("kind", wrong, "k"), ("key", "n", wrong)):
                with pytest.raises(InvalidInput) as refused:
                    await store.put_document(kind, key, b"", conversation_id=holder)  # type: ignore[arg-type]
                assert refused.value.field == field
                with pytest.raises(InvalidInput):
                    await store.get_document(kind, key, conversation_id=holder)  # type: ignore[arg-type]
                with pytest.raises(InvalidInput):
                    await store.delete_document(kind, key, conversation_id=holder)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                await store.documents(wrong, conversation_id=holder)  # type: ignore[arg-type]
        for data in ("text", None, 7, bytearray(b"x"), bytes(LARGEST_DOCUMENT + 1)):
            with pytest.raises(InvalidInput) as refused:
                await store.put_document("n", "k", data, conversation_id=holder)  # type: ignore[arg-type]
            assert refused.value.field == "data"
        for version in (-1, True, 1.0, "1", 2**54):
            with pytest.raises(InvalidInput):
                await store.put_document("n", "k", b"", expected_version=version)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                await store.delete_document("n", "k", expected_version=version)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await store.delete_document("n", "k", expected_version=0)
        for limit in (-1, "1", True):
            with pytest.raises(InvalidInput):
                await store.documents("n", conversation_id=holder, limit=limit)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await store.get_document("n", "k", conversation_id="no\0id")
        assert await store.documents("n", conversation_id=holder) == [kept]

    async def test_a_closed_backend_refuses_document_calls(
        self, backend: Backend, store: ConversationStore, holder: str | None
    ) -> None:
        put = await store.put_document("n", "k", b"", conversation_id=holder)
        await backend.close()
        for call in calls(holder):
            with pytest.raises(StoreClosed):
                await call(store)
        await backend.open()
        assert await store.documents("n", conversation_id=holder) == [put]


def calls(holder: str | None) -> list[Callable[[ConversationStore], Awaitable[object]]]:
    """Return every call that concerns documents."""
    return [
        lambda store: store.put_document("n", "k", b"x", conversation_id=holder),
        lambda store: store.put_document("n", "k", b"x", conversation_id=holder, expected_version=0),
        lambda store: store.put_document("n", "k", b"x", conversation_id=holder, expected_version=1),
        lambda store: store.get_document("n", "k", conversation_id=holder),
        lambda store: store.documents("n", conversation_id=holder),
        lambda store: store.document_kinds(conversation_id=holder),
        lambda store: store.delete_document("n", "k", conversation_id=holder),
        lambda store: store.delete_document("n", "k", conversation_id=holder, expected_version=1),
        lambda store: store.restore_documents([_document(store, holder)]),
    ]


def _document(store: ConversationStore, holder: str | None) -> Document:
    return Document(kind="n", key="k", data=b"", version=1, updated_at=store.now(), conversation_id=holder)


async def put_note(store: ConversationStore) -> None:
    await store.put_document("n", "k", b"")


async def restore_note(store: ConversationStore) -> None:
    await store.restore_documents([_document(store, None)])
