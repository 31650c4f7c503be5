"""What the encryption layer hides from a reader of the files, and what it refuses to read back."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from aforesaid.contracts import Entry, Tally
from aforesaid.encryption import (
    MasterKeys,
    generate_master_key,
    master_key_id,
    master_keys_from,
    master_keys_from_env,
)
from aforesaid.errors import InvalidInput, InvalidSetting, KeyUnavailable, MessageConflict, StoreDamaged
from aforesaid.layers.encrypted import EncryptedBackend, EncryptedStore
from aforesaid.layers.encrypted.keyring import OpenKeys
from aforesaid.layers.encrypted.rotation import rotate
from aforesaid.model.conversations import Changes, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import SEALED, Message, Speech
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock
from tests.builders import LAYER_STORES
from tests.encrypted_stores import MASTER, OTHER_MASTER, inner_for, opened, sealed_backend
from tests.stored_bodies import Bodies, edit_bodies, read_bodies

SECRET = "the alarm code is 4711"
TURN = [
    Message(role="user", content=SECRET, message_id="m1", tags=("secret-tag",), agent_name="secret-agent"),
    Message(
        role="assistant",
        content=[{"type": "tool_use", "id": "t1", "name": "unlock", "input": {"code": "secret-argument"}}],
        message_id="m2",
        dialect="anthropic",
        extra={"stop_reason": "secret-extra"},
        speech=Speech(spoken="secret-spoken", heard=6),
        tokens={"secret-counter": 12},
    ),
    Message(role="tool", content="secret-result"),
]
SECRETS = [
    word.encode()
    for word in (
        SECRET,
        "secret-tag",
        "secret-agent",
        "secret-argument",
        "secret-extra",
        "secret-counter",
        "secret-result",
        "secret-spoken",
        "secret-note",
        "secret-subject",
        "secret-name",
        "secret-label",
    )
]


class EncryptedConversation:
    """An encrypted conversation of two turns, over one of the stores."""

    def __init__(self, backend: EncryptedBackend, name: str) -> None:
        self.backend = backend
        self.name = name
        self.owner = f"owner-{new_id()}"
        self.id = new_id()

    @property
    def store(self) -> EncryptedStore:
        return self.backend.of(self.owner)

    async def fill(self) -> None:
        await self.store.create(started(self.id, now=self.store.now()))
        await self.store.append(self.id, TURN)
        await self.store.append(self.id, [Message(role="user", content="later", message_id="m4")])

    async def edit(self, edit: Callable[[Bodies], object], conversation_id: str | None = None) -> None:
        await edit_bodies(self.backend.inner, self.owner, conversation_id or self.id, edit)

    async def put(self, changes: Bodies) -> None:
        """Put these stored forms in the place of what is there."""
        await self.edit(lambda bodies: bodies.update(changes))

    async def bodies(self, conversation_id: str | None = None) -> Bodies:
        return await read_bodies(self.backend.inner, self.owner, conversation_id or self.id)

    async def entries(self) -> list[Entry]:
        return await self.store.page(self.id, limit=99)

    async def readable(self) -> list[bool]:
        return [entry.unreadable is None for entry in await self.entries()]


@pytest.fixture(params=LAYER_STORES)
async def encrypted(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FixedClock
) -> AsyncIterator[EncryptedConversation]:
    inner = inner_for(request.param, tmp_path, request, clock)
    async with opened(sealed_backend(inner)) as backend:
        one = EncryptedConversation(backend, request.param)
        await one.fill()
        yield one
        await one.store.clear()


# What is seen from outside


async def test_what_is_stored_says_nothing(encrypted: EncryptedConversation) -> None:
    for body in (await encrypted.bodies()).values():
        assert not [secret for secret in SECRETS if secret in body]
        stored = json.loads(body)
        assert set(stored) <= {"role", "content", "timestamp", "message_id", "dialect"}
        assert stored["dialect"] == SEALED
    assert [entry.message for entry in await encrypted.entries()][:3] == [
        replace(message, timestamp=encrypted.store.now()) for message in TURN
    ]
    assert (await encrypted.entries())[1].message.tokens == {"secret-counter": 12}


async def test_the_same_words_never_look_the_same(encrypted: EncryptedConversation) -> None:
    same = [Message(role="user", content="yes") for _ in range(3)]
    await encrypted.store.append(encrypted.id, same)
    bodies = list((await encrypted.bodies()).values())[-3:]
    assert len({json.loads(body)["content"] for body in bodies}) == 3


async def test_what_is_stored_is_no_larger_than_it_must_be(encrypted: EncryptedConversation) -> None:
    words = "x" * 3000
    await encrypted.store.append(encrypted.id, [Message(role="user", content=words, message_id=new_id())])
    assert len((await encrypted.bodies())[5]) < 3000 * 4 / 3 + 350


@pytest.mark.parametrize("store", ["sqlite", "file"])
@pytest.mark.parametrize("records", [False, True])
async def test_the_files_hold_no_plain_text(
    store: str, records: bool, tmp_path: Path, request: pytest.FixtureRequest, clock: FixedClock
) -> None:
    inner = inner_for(store, tmp_path, request, clock)
    async with opened(sealed_backend(inner, records=records)) as backend:
        kept = backend.of("erin")
        record = await kept.create(
            started(
                new_id(),
                now=kept.now(),
                subject="secret-subject",
                client_name="secret-name",
                notes="secret-note",
                tags=("secret-label",),
            )
        )
        await kept.append(record.id, TURN)
        await kept.put_document("notes", "n1", b"secret-note: likes tea")
        await kept.put_document("vectors/m", "1", b"secret-note", conversation_id=record.id)
        await kept.update(record.id, Changes(subject="secret-subject 2"))
        assert (
            await kept.get(record.id)
            == record.with_(**{n: getattr(await kept.get(record.id), n) for n in ("subject",)})
            or records is not None
        )
        found = {secret for secret in SECRETS for file in tmp_path.iterdir() if secret in file.read_bytes()}
        assert b"erin" in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    in_records = {b"secret-subject", b"secret-name", b"secret-note", b"secret-label"}
    assert found == (set() if records else in_records)


async def test_records_are_sealed_where_that_is_asked_for_and_still_found_by_tag(
    tmp_path: Path, request: pytest.FixtureRequest, clock: FixedClock
) -> None:
    for name in LAYER_STORES:
        inner = inner_for(name, tmp_path, request, clock)
        async with opened(sealed_backend(inner, records=True)) as backend:
            store = backend.of(f"owner-{new_id()}")
            labels = (("kitchen",), ("kitchen", ""), (), ("garden",))
            made = [
                await store.create(started(new_id(), now=store.now(), tags=tags, subject="dinner", notes="x"))
                for tags in labels
            ]
            found = (await store.find(Query(tags=("kitchen", "nowhere")))).conversations
            assert {record.id for record in found} == {made[0].id, made[1].id}
            assert all(record in made for record in found)
            inside = await store.inner.get(made[1].id)
            assert inside is not None
            assert "kitchen" not in str(inside)
            assert "dinner" not in str(inside)
            assert await store.get(made[1].id) == made[1]
            changed = await store.update(made[0].id, Changes(subject=None, tags=("garden",)))
            assert (changed.subject, changed.tags, changed.notes) == (None, ("garden",), "x")
            assert len((await store.find(Query(tags=("garden",)))).conversations) == 2
            await store.clear()


# What is refused


async def refused(encrypted: EncryptedConversation, sequences: set[int], *, words: str) -> None:
    """These entries are refused with these words, and all the others load."""
    entries = await encrypted.entries()
    assert {entry.sequence for entry in entries if entry.unreadable} == sequences
    assert all(words in str(entry.unreadable) for entry in entries if entry.unreadable)
    assert len([entry for entry in entries if not entry.unreadable]) == len(entries) - len(sequences)


async def test_a_plain_row_is_refused(encrypted: EncryptedConversation) -> None:
    plain = b'{"role":"assistant","content":"believe me","timestamp":"2026-03-01T09:30:00Z"}'
    await encrypted.put({2: plain})
    await refused(encrypted, {2}, words="not encrypted")


async def test_an_altered_row_is_refused(encrypted: EncryptedConversation) -> None:
    for change in (_flip_a_bit, _cut_short, _other_key, _no_parts):
        before = await encrypted.bodies()
        await encrypted.put({2: _sealed_as(before[2], change)})
        assert await encrypted.readable() == [True, False, True, True]
        await encrypted.put(before)
    assert await encrypted.readable() == [True] * 4


def _sealed_as(body: bytes, change: Callable[[str], str]) -> bytes:
    stored = json.loads(body)
    stored["content"] = change(stored["content"])
    return json.dumps(stored).encode()


def _flip_a_bit(content: str) -> str:
    head, _, sealed = content.rpartition(".")
    data = bytearray(base64.b64decode(sealed))
    data[len(data) // 2] ^= 1
    return f"{head}.{base64.b64encode(data).decode()}"


def _cut_short(content: str) -> str:
    return content[:-8]


def _other_key(content: str) -> str:
    fingerprint, _, sealed = content.split(".")
    return f"{fingerprint}.00000000.{sealed}"


def _no_parts(content: str) -> str:
    return content.replace(".", "")


async def test_every_bit_of_the_ciphertext_counts(encrypted: EncryptedConversation) -> None:
    before = await encrypted.bodies()
    whole = json.loads(before[4])["content"].rpartition(".")[2]
    for bit in range(0, len(base64.b64decode(whole)) * 8, 37):

        def flip(content: str, bit: int = bit) -> str:
            head, _, sealed = content.rpartition(".")
            data = bytearray(base64.b64decode(sealed))
            data[bit // 8] ^= 1 << bit % 8
            return f"{head}.{base64.b64encode(data).decode()}"

        await encrypted.put({4: _sealed_as(before[4], flip)})
        assert await encrypted.readable() == [True, True, True, False]
        await encrypted.put(before)


async def test_rows_that_were_swapped_are_refused(encrypted: EncryptedConversation) -> None:
    def swap(bodies: Bodies) -> None:
        contents = {number: json.loads(body)["content"] for number, body in bodies.items()}
        bodies[1] = _sealed_as(bodies[1], lambda _: contents[2])
        bodies[2] = _sealed_as(bodies[2], lambda _: contents[1])

    await encrypted.edit(swap)
    await refused(encrypted, {1, 2}, words="belongs in another place")


async def test_a_row_that_took_its_labels_along_to_another_place_is_refused(
    encrypted: EncryptedConversation,
) -> None:
    """Messages of one turn have one moment. Exchanged whole, id and role included, both are out of place."""
    turn = [Message(role="user", content=str(number)) for number in range(4)]
    await encrypted.store.append(encrypted.id, turn)

    def swap(bodies: Bodies) -> None:
        bodies[6], bodies[7] = bodies[7], bodies[6]

    await encrypted.edit(swap)
    entries = await encrypted.entries()
    assert [entry.message.content for entry in entries if not entry.unreadable][-2:] == ["0", "3"]
    assert [entry.sequence for entry in entries if entry.unreadable] == [6, 7]
    # Also where a page begins between the two.
    (alone,) = await encrypted.store.page(encrypted.id, limit=1, offset=6)
    assert alone.unreadable
    (last, *_) = await encrypted.store.tail(encrypted.id, limit=2)
    assert last.unreadable


async def test_a_row_of_an_earlier_turn_cannot_be_played_again_later(
    encrypted: EncryptedConversation,
) -> None:
    def replay(bodies: Bodies) -> None:
        said = json.loads(bodies[1])["content"]
        bodies[4] = _sealed_as(bodies[4], lambda _: said)

    await encrypted.edit(replay)
    assert await encrypted.readable() == [True, True, True, False]


async def test_a_row_that_is_played_again_with_all_its_labels_is_refused(
    encrypted: EncryptedConversation,
) -> None:
    """A message without an id, copied to a row behind it: of the same turn, or of a later one."""
    turn = [Message(role="tool", content="first"), Message(role="tool", content="second")]
    await encrypted.store.append(encrypted.id, turn)
    await encrypted.store.append(encrypted.id, turn[:1])
    for later in (6, 7):
        before = await encrypted.bodies()
        await encrypted.put({later: before[5]})
        assert [e.sequence for e in await encrypted.entries() if e.unreadable] == [later]
        await encrypted.put(before)


async def test_a_row_that_was_moved_to_an_earlier_place_is_refused(
    encrypted: EncryptedConversation, clock: FixedClock
) -> None:
    """Without an id, with the same role and at the same moment: only its number tells."""
    first = await encrypted.store.append(encrypted.id, [Message(role="tool", content="first")])
    await encrypted.store.append(encrypted.id, [Message(role="tool", content="second")])
    earlier, later = first.new[0].sequence, first.new[0].sequence + 1

    def move(bodies: Bodies) -> None:
        bodies[earlier] = bodies[later]

    await encrypted.edit(move)
    entries = {entry.sequence: entry for entry in await encrypted.entries()}
    assert entries[earlier].unreadable
    assert "belongs in another place" in str(entries[earlier].unreadable)
    assert not entries[later].unreadable


async def test_a_row_of_another_conversation_or_owner_is_refused(encrypted: EncryptedConversation) -> None:
    other = EncryptedConversation(encrypted.backend, encrypted.name)
    await other.fill()
    theirs = await other.bodies()
    second = new_id()
    await encrypted.store.create(started(second, now=encrypted.store.now()))
    await encrypted.store.append(second, TURN)
    for strange in (theirs, await encrypted.bodies(second)):
        before = await encrypted.bodies()
        await encrypted.put({1: strange[1]})
        assert await encrypted.readable() == [False, True, True, True]
        await encrypted.put(before)
    await other.store.clear()


async def test_another_role_time_or_id_is_refused(encrypted: EncryptedConversation) -> None:
    changes: list[dict[str, object]] = [
        {"role": "system"},
        {"timestamp": (encrypted.store.now() + timedelta(seconds=1)).isoformat()},
        {"message_id": None},
    ]
    for change in changes:
        before = await encrypted.bodies()

        stored = {k: v for k, v in (json.loads(before[1]) | change).items() if v is not None}
        await encrypted.put({1: json.dumps(stored).encode()})
        entries = await encrypted.entries()
        # A row that another time moved shows where it stands, and as missing where it was written.
        assert {entry.sequence for entry in entries if entry.unreadable} == {1}, change
        await encrypted.put(before)


async def test_a_window_goes_on_without_what_is_refused(encrypted: EncryptedConversation) -> None:
    from aforesaid.memory.manager import ConversationManager

    forged = b'{"role":"user","content":"forged","timestamp":"2026-03-01T09:30:00Z"}'
    await encrypted.put({1: forged})
    context = await ConversationManager(encrypted.store).load_context(encrypted.id)
    assert "forged" not in str(context.messages)
    assert any("not encrypted" in warning for warning in context.report.warnings)


async def test_without_a_key_ciphertext_is_not_taken_for_words(encrypted: EncryptedConversation) -> None:
    from aforesaid.memory.manager import ConversationManager

    bare = ConversationManager(encrypted.backend.inner.of(encrypted.owner))
    context = await bare.load_context(encrypted.id)
    assert context.messages == ()
    assert any("encrypted" in warning for warning in context.report.warnings)
    assert await bare.messages(encrypted.id) == []
    assert await bare.store.load(encrypted.id) == []


# Idempotency


async def test_a_retry_is_known_and_other_words_under_the_id_conflict(
    encrypted: EncryptedConversation,
) -> None:
    before = await encrypted.entries()
    again = await encrypted.store.append(encrypted.id, TURN[:2])
    assert (again.new, list(again.known)) == ((), before[:2])
    with pytest.raises(MessageConflict):
        await encrypted.store.append(encrypted.id, [Message(role="user", content="other", message_id="m1")])
    mixed = await encrypted.store.append(
        encrypted.id, [TURN[0], Message(role="user", content="new", message_id="m9"), TURN[1]]
    )
    assert [entry.message.content for entry in mixed.new] == ["new"]
    assert len(mixed.known) == 2
    assert await encrypted.readable() == [True] * 5


async def test_two_processes_write_to_one_conversation(
    tmp_path: Path, request: pytest.FixtureRequest, clock: FixedClock
) -> None:
    """Each remembers where the log ends, and finds out when the other wrote."""
    async with (
        opened(sealed_backend(inner_for("sqlite", tmp_path, request, clock))) as one,
        opened(sealed_backend(inner_for("sqlite", tmp_path, request, clock))) as two,
    ):
        record = await one.of("erin").create(started(new_id(), now=clock()))
        for number in range(6):
            backend = (one, two)[number % 2]
            await backend.of("erin").append(record.id, [Message(role="user", content=str(number))])
        entries = await two.of("erin").page(record.id, limit=9)
        assert [entry.message.content for entry in entries] == list("012345")
        # Removed and made again with as many changes: the memory of the other is wrong, and it notices.
        await two.of("erin").delete(record.id)
        await two.of("erin").create(started(record.id, now=clock()))
        for number in range(6):
            turn = [Message(role="user", content="x")] if number == 5 else []
            if turn:
                await two.of("erin").append(record.id, turn)
            else:
                await two.of("erin").update(record.id, Changes(status="open"))
        await one.of("erin").append(record.id, [Message(role="user", content="y")])
        entries = await two.of("erin").page(record.id, limit=9)
        assert [(entry.unreadable, entry.message.content) for entry in entries] == [(None, "x"), (None, "y")]


# Documents


async def test_documents_are_sealed_and_bound_to_their_place(encrypted: EncryptedConversation) -> None:
    store, inner = encrypted.store, encrypted.store.inner
    kept = await store.put_document("notes", "n1", b"likes tea")
    assert (kept.data, kept.version) == (b"likes tea", 1)
    raw = await inner.get_document("notes", "n1")
    assert raw is not None
    assert b"tea" not in raw.data
    await inner.put_document("notes", "n2", raw.data)
    await inner.put_document("notes", "n3", b"plain")
    for key, words in (("n2", "another place"), ("n3", "not encrypted")):
        with pytest.raises(StoreDamaged, match=words):
            await store.get_document("notes", key)
    assert [document.key for document in await store.documents("notes")] == ["n1"]
    assert await store.document_kinds() == ["notes"]


async def test_a_page_of_documents_is_full_although_some_cannot_be_read(
    encrypted: EncryptedConversation,
) -> None:
    store, inner = encrypted.store, encrypted.store.inner
    for number in range(9):
        target = inner if number % 3 == 1 else store
        await target.put_document("notes", f"n{number}", b"words")
    page = await store.documents("notes", limit=4)
    assert [document.key for document in page] == ["n0", "n2", "n3", "n5"]
    rest = await store.documents("notes", limit=4, after=page[-1].key)
    assert [document.key for document in rest] == ["n6", "n8"]


async def test_the_documents_with_the_keys_are_not_for_callers(encrypted: EncryptedConversation) -> None:
    assert await encrypted.store.get_document("keys", "data") is None
    assert await encrypted.store.documents("keys") == []
    with pytest.raises(InvalidInput, match="keys"):
        await encrypted.store.put_document("keys", "data", b"mine")
    with pytest.raises(InvalidInput, match="keys"):
        await encrypted.store.delete_document("keys", "data")


# Keys


async def test_the_wrong_master_key_is_an_error_that_names_the_right_one(
    encrypted: EncryptedConversation,
) -> None:
    wrong = sealed_backend(encrypted.backend.inner, OTHER_MASTER)
    with pytest.raises(KeyUnavailable, match=master_key_id(MASTER)) as caught:
        await wrong.of(encrypted.owner).page(encrypted.id, limit=9)
    assert caught.value.key_id == master_key_id(MASTER)
    before = await encrypted.entries()
    with pytest.raises(KeyUnavailable):
        await wrong.of(encrypted.owner).append(encrypted.id, TURN)
    assert await encrypted.entries() == before


async def test_the_key_of_another_owner_is_refused(encrypted: EncryptedConversation) -> None:
    other = EncryptedConversation(encrypted.backend, encrypted.name)
    await other.fill()
    theirs = await other.store.inner.get_document("keys", "data")
    assert theirs is not None
    await encrypted.store.inner.put_document("keys", "data", theirs.data)
    fresh = sealed_backend(encrypted.backend.inner)
    with pytest.raises(KeyUnavailable, match="another owner"):
        await fresh.of(encrypted.owner).page(encrypted.id, limit=9)
    await other.store.clear()


async def test_without_its_data_key_nothing_can_be_read_and_the_key_is_named(
    encrypted: EncryptedConversation,
) -> None:
    key_id = json.loads((await encrypted.bodies())[1])["content"].split(".")[1]
    await encrypted.store.inner.delete_document("keys", "data")
    fresh = sealed_backend(encrypted.backend.inner).of(encrypted.owner)
    entries = await fresh.page(encrypted.id, limit=9)
    assert all(key_id in str(entry.unreadable) for entry in entries)
    await fresh.create(started(new_id(), now=fresh.now()))  # which makes another key
    entries = await fresh.page(encrypted.id, limit=9)
    assert all(f"data key {key_id}, which is not at hand" in str(entry.unreadable) for entry in entries)


async def test_without_its_data_key_a_conversation_is_not_written_to(
    encrypted: EncryptedConversation,
) -> None:
    """The keyring may be another one: with the right one it must be readable as a whole."""
    elsewhere = sealed_backend(encrypted.backend.inner, keyring=InMemoryBackend()).of(encrypted.owner)
    before = await encrypted.bodies()
    key_id = _key_in(before[1])
    with pytest.raises(KeyUnavailable, match=key_id) as caught:
        await elsewhere.append(encrypted.id, [Message(role="user", content="from now on")])
    assert caught.value.key_id == key_id
    with pytest.raises(KeyUnavailable, match=key_id):
        await elsewhere.replace(encrypted.id, Message(role="user", content="other words", message_id="m4"))
    with pytest.raises(KeyUnavailable, match=key_id):
        await elsewhere.put_document("vectors/m", "1", b"numbers", conversation_id=encrypted.id)
    assert await encrypted.bodies() == before
    assert await elsewhere.document_kinds(conversation_id=encrypted.id) == []


async def test_without_its_data_key_a_record_is_refused_or_set_aside(
    encrypted: EncryptedConversation,
) -> None:
    keyring = InMemoryBackend()
    store = sealed_backend(encrypted.backend.inner, records=True).of(encrypted.owner)
    lost = sealed_backend(encrypted.backend.inner, records=True, keyring=keyring).of(encrypted.owner)
    sealed = started(new_id(), now=store.now(), tags=("kitchen",), subject="dinner")
    await store.create(sealed)
    await store.bind("tablet", sealed.id)
    with pytest.raises(KeyUnavailable, match="data key"):
        await lost.get(sealed.id)
    with pytest.raises(KeyUnavailable, match="data key"):
        await lost.session("tablet")
    await store.inner.update(encrypted.id, Changes(subject="in plain words"))
    with pytest.raises(StoreDamaged, match="not encrypted"):
        await lost.get(encrypted.id)
    bare = await store.create(started(new_id(), now=store.now()))
    assert [record.id for record in (await lost.find(Query())).conversations] == [bare.id]
    assert (await lost.find(Query(tags=("kitchen",)))).conversations == ()
    assert [record.id for record in (await store.find(Query(tags=("kitchen",)))).conversations] == [sealed.id]


async def test_dropping_an_owners_key_makes_backups_unreadable(tmp_path: Path, clock: FixedClock) -> None:
    data, backup = tmp_path / "data.json", tmp_path / "backup.json"
    keys = backend_for(f"file://{tmp_path}/keys.json", clock=clock)
    async with opened(sealed_backend(backend_for(f"file://{data}", clock=clock), keyring=keys)) as backend:
        record = await backend.of("erin").create(started(new_id(), now=clock()))
        await backend.of("erin").append(record.id, TURN)
        assert (await backend.of("erin").inner.document_kinds()) == []
        backup.write_bytes(data.read_bytes())
        await backend.of("erin").clear()
        assert b"erin" not in (tmp_path / "keys.json").read_bytes()
    keys = backend_for(f"file://{tmp_path}/keys.json", clock=clock)
    async with opened(sealed_backend(backend_for(f"file://{backup}", clock=clock), keyring=keys)) as backend:
        entries = await backend.of("erin").page(record.id, limit=9)
        assert [entry.unreadable is None for entry in entries] == [False] * 3


async def test_after_an_owner_was_cleared_a_new_key_is_made(encrypted: EncryptedConversation) -> None:
    """Also in a process that still holds the old one: what it seals from then on must stay readable."""
    elsewhere = sealed_backend(encrypted.backend.inner)
    await elsewhere.of(encrypted.owner).page(encrypted.id, limit=9)
    await encrypted.store.clear()
    store = elsewhere.of(encrypted.owner)
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, TURN)
    fresh = sealed_backend(encrypted.backend.inner).of(encrypted.owner)
    assert [entry.unreadable for entry in await fresh.page(record.id, limit=9)] == [None] * 3


async def test_after_an_owner_was_cleared_and_begun_anew_elsewhere_the_key_made_there_is_used(
    encrypted: EncryptedConversation,
) -> None:
    elsewhere = sealed_backend(encrypted.backend.inner).of(encrypted.owner)
    await elsewhere.page(encrypted.id, limit=9)
    await encrypted.store.clear()
    await encrypted.fill()
    record = await elsewhere.create(started(new_id(), now=elsewhere.now()))
    await elsewhere.append(record.id, TURN)
    fresh = sealed_backend(encrypted.backend.inner).of(encrypted.owner)
    assert [entry.unreadable for entry in await fresh.page(record.id, limit=9)] == [None] * 3


@pytest.mark.parametrize("what", ["append", "put_document", "update", "replace"])
async def test_what_is_changed_in_a_conversation_that_began_there_is_sealed_with_that_key(
    encrypted: EncryptedConversation, what: str
) -> None:
    elsewhere = sealed_backend(encrypted.backend.inner, records=True).of(encrypted.owner)
    await elsewhere.create(started(new_id(), now=elsewhere.now()))
    await encrypted.store.clear()
    await encrypted.fill()
    if what == "append":
        await elsewhere.append(encrypted.id, [Message(role="user", content="and more")])
    elif what == "put_document":
        await elsewhere.put_document("vectors/m", "1", b"numbers", conversation_id=encrypted.id)
    elif what == "update":
        await elsewhere.update(encrypted.id, Changes(subject="dinner"))
    else:
        await elsewhere.replace(encrypted.id, Message(role="user", content="other words", message_id="m4"))
    fresh = sealed_backend(encrypted.backend.inner, records=True).of(encrypted.owner)
    assert not [entry for entry in await fresh.page(encrypted.id, limit=9) if entry.unreadable]
    await fresh.get(encrypted.id)
    for kind in await fresh.document_kinds(conversation_id=encrypted.id):
        assert await fresh.documents(kind, conversation_id=encrypted.id)


@pytest.mark.parametrize("apart", [False, True])
async def test_a_conversation_that_begins_while_its_owner_is_cleared_stays_readable(
    encrypted: EncryptedConversation, clock: FixedClock, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    keyring = InMemoryBackend(clock=clock) if apart else None
    clearing, elsewhere = (sealed_backend(encrypted.backend.inner, keyring=keyring) for _ in range(2))
    owner, begun = f"owner-{new_id()}", new_id()
    store, other = clearing.of(owner), elsewhere.of(owner)
    await store.create(started(new_id(), now=store.now()))
    clear = store.inner.clear

    async def clear_and_be_overtaken() -> Tally:
        gone = await clear()
        await other.create(started(begun, now=other.now()))
        await other.append(begun, TURN)
        return gone

    monkeypatch.setattr(store.inner, "clear", clear_and_be_overtaken)
    assert (await store.clear()).keys == 1
    fresh = sealed_backend(encrypted.backend.inner, keyring=keyring).of(owner)
    assert [entry.unreadable for entry in await fresh.page(begun, limit=9)] == [None] * 3
    await fresh.clear()


# Rotation


async def test_a_new_master_key_rewraps_and_touches_no_message(encrypted: EncryptedConversation) -> None:
    before = await encrypted.bodies()
    both = sealed_backend(encrypted.backend.inner, OTHER_MASTER, MASTER)
    done = await rotate(both, owner=encrypted.owner)
    assert (done.owners, done.rewrapped, done.messages) == (1, 1, 0)
    assert (await rotate(both, owner=encrypted.owner)).rewrapped == 0
    assert await encrypted.bodies() == before
    new = sealed_backend(encrypted.backend.inner, OTHER_MASTER).of(encrypted.owner)
    assert [entry.message for entry in await new.page(encrypted.id, limit=9)] == [
        entry.message for entry in await encrypted.entries()
    ]
    with pytest.raises(KeyUnavailable):
        await sealed_backend(encrypted.backend.inner, MASTER).of(encrypted.owner).page(encrypted.id, limit=9)


async def test_a_deep_rotation_seals_everything_anew_and_drops_the_old_key(
    encrypted: EncryptedConversation, clock: FixedClock
) -> None:
    store = encrypted.store
    await store.put_document("notes", "n1", b"likes tea")
    await store.put_document("vectors/m", "1", b"numbers", conversation_id=encrypted.id)
    before, record, raw = await encrypted.entries(), await store.get(encrypted.id), await encrypted.bodies()
    first = await rotate(encrypted.backend, owner=encrypted.owner, deep=True)
    assert (first.messages, first.documents, first.retired, first.waiting) == (4, 2, 0, 1)
    assert await encrypted.entries() == before
    assert await store.get(encrypted.id) == record
    after = await encrypted.bodies()
    assert {_key_in(body) for body in after.values()}.isdisjoint({_key_in(body) for body in raw.values()})
    # A process that has not heard of it yet still writes with the old key, and everything is readable.
    clock.advance(timedelta(minutes=6))
    second = await rotate(encrypted.backend, owner=encrypted.owner, deep=True)
    assert (second.messages, second.retired, second.waiting) == (0, 1, 0)
    fresh = sealed_backend(encrypted.backend.inner).of(encrypted.owner)
    assert await fresh.page(encrypted.id, limit=9) == before
    assert (await fresh.append(encrypted.id, TURN[:2])).new == ()
    document = await fresh.get_document("notes", "n1")
    assert document is not None
    assert document.data == b"likes tea"
    # What was sealed with the old key, and kept elsewhere, is lost for good.
    await encrypted.put({1: raw[1]})
    assert f"data key {_key_in(raw[1])}" in str((await fresh.page(encrypted.id, limit=9))[0].unreadable)


def _key_in(body: bytes) -> str:
    return str(json.loads(body)["content"]).split(".")[1]


async def test_a_deep_rotation_that_was_broken_off_goes_on(
    encrypted: EncryptedConversation, clock: FixedClock
) -> None:
    """Readable in between with both keys; a retry is known whichever key sealed it."""
    other = sealed_backend(encrypted.backend.inner)
    before = await other.of(encrypted.owner).page(encrypted.id, limit=9)
    await encrypted.backend.keyring.add(encrypted.owner)  # and then the process ended
    assert await encrypted.entries() == before
    again = await encrypted.store.append(encrypted.id, [TURN[0], Message(role="user", content="in between")])
    assert (len(again.new), len(again.known)) == (1, 1)
    with pytest.raises(MessageConflict):
        await encrypted.store.append(encrypted.id, [Message(role="user", content="other", message_id="m1")])
    assert len({_key_in(body) for body in (await encrypted.bodies()).values()}) == 2
    # The other process holds the old key only: it looks again when it meets the new one.
    assert (
        len([e for e in await other.of(encrypted.owner).page(encrypted.id, limit=9) if not e.unreadable]) == 5
    )
    clock.advance(timedelta(minutes=6))
    done = await rotate(encrypted.backend, owner=encrypted.owner, deep=True)
    assert (done.messages, done.retired) == (4, 1)
    assert await encrypted.readable() == [True] * 5


async def test_a_deep_rotation_that_another_has_overtaken_drops_no_key_that_is_in_use(
    encrypted: EncryptedConversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sealed_backend(encrypted.backend.inner)
    retire = encrypted.backend.keyring.retire

    async def be_overtaken(owner: str, held: OpenKeys) -> bool:
        assert (await rotate(other, owner=owner, deep=True, grace=timedelta(0))).retired == 1
        await other.keyring.add(owner)  # the next one has begun, and sealed nothing anew so far
        return await retire(owner, held)

    monkeypatch.setattr(encrypted.backend.keyring, "retire", be_overtaken)
    done = await rotate(encrypted.backend, owner=encrypted.owner, deep=True, grace=timedelta(0))
    assert (done.retired, done.waiting) == (0, 1)
    fresh = sealed_backend(encrypted.backend.inner).of(encrypted.owner)
    assert [entry.unreadable for entry in await fresh.page(encrypted.id, limit=9)] == [None] * 4


async def test_a_deep_rotation_seals_records_too(tmp_path: Path, clock: FixedClock) -> None:
    inner = InMemoryBackend(clock=clock)
    async with opened(sealed_backend(inner, records=True)) as backend:
        store = backend.of("erin")
        record = await store.create(started(new_id(), now=clock(), tags=("kitchen",), subject="dinner"))
        await backend.keyring.add("erin")
        assert (await store.find(Query(tags=("kitchen",)))).conversations == (record,)
        done = await rotate(backend, deep=True, grace=timedelta(0))
        assert (done.owners, done.records, done.retired) == (1, 1, 1)
        (found,) = (await store.find(Query(tags=("kitchen",)))).conversations
        assert (found.subject, found.tags) == ("dinner", ("kitchen",))


# Where master keys come from


def test_master_keys_come_from_text_environment_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = generate_master_key(), generate_master_key()
    ids = [master_key_id(base64.b64decode(key)) for key in (new, old)]
    file = tmp_path / "keys"
    file.write_text(f"# the current one first\n{new}\n{old}  # until rotated\n")
    file.chmod(0o600)
    monkeypatch.setenv("SOME_KEY", f"{new},{old}")
    for source in (f"{new} {old}", "env:SOME_KEY", f"file:{file}"):
        assert master_keys_from(source).current == ids[0]
    assert master_keys_from_env({}) is None
    for environ in ({"AFORESAID_MASTER_KEY": new}, {"AFORESAID_MASTER_KEY_FILE": str(file)}):
        found = master_keys_from_env(environ)
        assert found is not None
        assert found.current == ids[0]


@pytest.mark.parametrize("source", ["secret!", "", "env:NOT_SET", "file:/no/such/file", "c2hvcnQ="])
def test_a_master_key_that_is_none_is_refused_without_repeating_it(source: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        master_keys_from(source)
    assert "secret!" not in str(caught.value)
    assert "c2hvcnQ=" not in str(caught.value)


def test_a_master_key_has_its_length_and_there_is_one() -> None:
    with pytest.raises(InvalidSetting):
        MasterKeys()
    with pytest.raises(InvalidSetting):
        MasterKeys(b"short")
    with pytest.raises(InvalidSetting, match="only one"):
        master_keys_from_env({"AFORESAID_MASTER_KEY": "x", "AFORESAID_MASTER_KEY_FILE": "y"})
