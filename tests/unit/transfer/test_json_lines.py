"""An export holds what the store holds; a file that is not whole, or not ours, changes nothing."""

import io
import json
import os
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import Conflict, InvalidInput, StoreDamaged, StoreForeign, StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing import FixedClock
from aforesaid.transfer import CopyReport, export, import_
from tests.builders import FEATURE_STORES
from tests.examples import examples
from tests.unit.transfer.conftest import NewBackend
from tests.unit.transfer.lives import (
    conversation_with,
    everything,
    live,
    odd_messages,
    user,
)

pytestmark = pytest.mark.slow

Lines = list[bytes]
Change = Callable[[ConversationStore, str], Awaitable[None]]


@pytest.fixture
def memory(clock: FixedClock) -> InMemoryBackend:
    return InMemoryBackend(clock=clock)


@pytest.fixture
def empty(clock: FixedClock) -> InMemoryBackend:
    return InMemoryBackend(clock=clock)


async def exported(backend: Backend | ConversationManager, owner: str | None = None) -> bytes:
    file = io.BytesIO()
    await export(backend, file, owner=owner)
    return file.getvalue()


async def imported(text: bytes, backend: Backend) -> CopyReport:
    return await import_(io.BytesIO(text), backend)


@pytest.fixture
async def small(memory: Backend) -> bytes:
    """An export with two conversations of two owners."""
    await conversation_with(memory, "first", "second")
    third = await conversation_with(memory, "third", owner="sam")
    await memory.of("sam").put_document("note", "b", b"x", conversation_id=third.id)
    await memory.of("sam").put_document("note", "a", b"y", conversation_id=third.id)
    await memory.of("erin").put_document("note", "a", b"z")
    return await exported(memory)


async def test_two_exports_of_one_store_differ_only_in_their_moment(
    memory: Backend, clock: FixedClock
) -> None:
    await live(memory, clock)
    first, second = await exported(memory), await exported(memory)
    assert first.splitlines()[1:-1] == second.splitlines()[1:-1]


async def test_the_form_is_as_documented(memory: Backend, clock: FixedClock) -> None:
    record = await memory.of("erin").resume("kitchen", started(new_id(), now=clock()))
    await memory.of("erin").append(record.id, odd_messages())
    text = await exported(memory)
    header, conversation, *entries, trailer = map(json.loads, text.splitlines())
    assert (header["aforesaid"], header["version"], header["wire"]) == ("export", 1, 1)
    assert datetime.fromisoformat(header["exported_at"]).utcoffset() == timedelta(0)
    assert (conversation["owner"], conversation["sessions"]) == ("erin", ["kitchen"])
    assert conversation["conversation"]["id"] == record.id
    assert "messages" not in conversation["conversation"]
    assert sorted(one["entry"]["sequence"] for one in entries) == [1, 2, 3, 4, 5]
    assert {frozenset(one["entry"]) for one in entries} == {
        frozenset(("sequence", "revision", "stored_at", "message"))
    }
    assert trailer["aforesaid"] == "end"
    assert (trailer["conversations"], trailer["entries"]) == (1, 5)
    assert trailer["sha256"] == sha256(text[: text.rindex(b"\n", 0, -1) + 1]).hexdigest()
    assert text.isascii() or text.decode("utf-8")


async def test_the_form_of_documents_is_as_documented(memory: Backend, clock: FixedClock) -> None:
    store = memory.of("erin")
    record = await store.create(started(new_id(), now=clock()))
    await store.put_document("note", "tea", b"green", conversation_id=record.id)
    await store.put_document("note", "coffee", b"black")
    _, owned, _, derived, trailer = map(json.loads, (await exported(memory)).splitlines())
    document = {"kind": "note", "version": 1, "updated_at": clock().isoformat().replace("+00:00", "Z")}
    assert owned == {"owner": "erin", "document": document | {"key": "coffee", "data": "YmxhY2s="}}
    assert derived == {"document": document | {"key": "tea", "data": "Z3JlZW4="}}
    assert trailer["documents"] == 2


async def test_an_empty_store_is_an_export_of_two_lines(memory: Backend, empty: Backend) -> None:
    text = await exported(memory)
    assert len(text.splitlines()) == 2
    assert await imported(text, empty) == CopyReport()


class TestOneOwner:
    async def test_can_be_exported_alone(self, memory: Backend, empty: Backend, small: bytes) -> None:
        await imported(await exported(memory, "sam"), empty)
        assert list(await everything(empty)) == ["sam"]

    async def test_a_handle_is_exported_under_the_name_that_is_given(
        self, memory: Backend, empty: Backend, small: bytes
    ) -> None:
        handle = ConversationManager(memory.of("sam"))
        await imported(await exported(handle, "sam again"), empty)
        assert (await everything(empty))["sam again"] == (await everything(memory))["sam"]
        with pytest.raises(InvalidInput, match="requires an owner"):
            await exported(handle)

    async def test_a_name_that_is_none_is_refused(self, memory: Backend) -> None:
        with pytest.raises(InvalidInput, match="owner"):
            await exported(memory, "")


class TestNotWhole:
    async def test_cut_off_anywhere_it_is_refused_and_changes_nothing(
        self, small: bytes, empty: Backend
    ) -> None:
        for end in range(len(small)):
            with pytest.raises((StoreDamaged, StoreForeign), match=r"line \d+"):
                await imported(small[:end], empty)
        assert await everything(empty) == {}
        assert (await imported(small, empty)).copied == 2

    async def test_altered_anywhere_it_is_refused_and_changes_nothing(
        self, small: bytes, empty: Backend
    ) -> None:
        for place in range(len(small)):
            altered = bytearray(small)
            altered[place] ^= 1
            with pytest.raises((StoreDamaged, StoreForeign), match=r"line \d+"):
                await imported(bytes(altered), empty)
        assert await everything(empty) == {}

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda lines: lines[:-1], r"cut off after line 9"),
            (lambda lines: [*lines[:-1], lines[-1][:-9]], "cut off in line 10"),
            (lambda lines: [*lines, lines[1]], "continues after its last line 10"),
            (
                lambda lines: [*lines[:3], *lines[4:]],
                "line 9, its last, counts 2 conversations, 3 entries, 3 documents",
            ),
            (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 3 .* without a conversation"),
            (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "line 5 .* not in reading order"),
            (
                lambda lines: [*lines[:2], b"{}\n", *lines[2:]],
                "line 3 .* neither a conversation nor an entry nor a document",
            ),
            (lambda lines: [*lines[:2], b"[\n", *lines[2:]], "line 3 .* cannot be read"),
            (lambda lines: [*lines[:3], b"\n", *lines[3:]], "line 4 .* cannot be read"),
            (lambda lines: _with(lines, 3, b'"first"', b'"fiast"'), "SHA-256 in line 10, .* lines 1 to 9"),
            (lambda lines: _with(lines, 3, b'"sequence":1', b'"sequence":0'), "line 4 .* cannot be read"),
            (lambda lines: _with(lines, 3, b'"first"', b"NaN"), "line 4 .* cannot be read"),
            (lambda lines: _with(lines, 3, b',"timestamp":', b',"times":'), "line 4 .* timestamp"),
            (lambda lines: _with(lines, 2, b'"erin"', b'""'), "line 3 .* owner must not be empty"),
            (lambda lines: _with(lines, 2, b'"erin"', b'"aforesaid.journal"'), "line 3 .* the name is taken"),
            (lambda lines: _with(lines, 2, b'"sessions":[]', b'"sessions":[""]'), "line 3 .* session_id"),
            (lambda lines: _with(lines, 2, b'"revision":2', b'"revision":-2'), "line 3 .* revision"),
            (lambda lines: _with(lines, 1, b'"data":"eg=="', b'"data":"eg="'), "line 2 .* cannot be read"),
            (lambda lines: _with(lines, 1, b'"erin"', b'""'), "line 2 .* owner must not be empty"),
            (lambda lines: _with(lines, 1, b'"erin"', b'"aforesaid.journal"'), "line 2 .* the name is taken"),
            (lambda lines: _with(lines, 1, b'"owner":"erin",', b""), "line 2 .* document without an owner"),
            (lambda lines: _with(lines, 1, b'"version":1', b'"version":0'), "line 2 .* cannot be read"),
            (lambda lines: _with(lines, 7, b'"key":"a"', b'"key":""'), "line 8 .* key must not be empty"),
            (lambda lines: [*lines[:7], lines[8], lines[7], lines[9]], "line 9 .* order of kinds and keys"),
            (lambda lines: [*lines[:6], *lines[7:9], lines[6], lines[9]], "line 9 .* after a document"),
        ],
    )
    async def test_the_error_says_where(
        self, small: bytes, empty: Backend, change: Callable[[Lines], Lines], words: str
    ) -> None:
        with pytest.raises(StoreDamaged, match=words):
            await imported(b"".join(change(small.splitlines(keepends=True))), empty)
        assert await everything(empty) == {}


def _with(lines: Lines, place: int, old: bytes, new: bytes) -> Lines:
    assert old in lines[place]
    return [*lines[:place], lines[place].replace(old, new), *lines[place + 1 :]]


class TestNotOurs:
    @pytest.mark.parametrize("text", [b"", b"\n", b"{}\n", b'{"aforesaid":"end"}\n', b"hello\n", b"\x00\xff"])
    async def test_another_file_is_refused(self, empty: Backend, text: bytes) -> None:
        with pytest.raises(StoreForeign, match="line 1 is not the header of an Aforesaid export"):
            await imported(text, empty)

    @pytest.mark.parametrize(
        ("old", "new"), [(b'"version":1', b'"version":2'), (b'"wire":1', b'"wire":2'), (b":1,", b":0,")]
    )
    async def test_an_unknown_version_is_refused(
        self, small: bytes, empty: Backend, old: bytes, new: bytes
    ) -> None:
        with pytest.raises(StoreForeign, match="line 1 says version"):
            await imported(small.replace(old, new, 1), empty)


class TestWhatIsThere:
    async def test_a_conversation_that_went_on_is_left_as_it_is(
        self, memory: Backend, empty: Backend, small: bytes
    ) -> None:
        await imported(small, empty)
        conversation_id, _ = (await everything(empty))["erin"]
        await empty.of("erin").append(conversation_id, [user("later")])
        before = await everything(empty)
        with pytest.raises(Conflict, match=conversation_id):
            await imported(small, empty)
        assert await everything(empty) == before

    async def test_a_later_export_brings_it_up_to_date(
        self, memory: Backend, empty: Backend, small: bytes
    ) -> None:
        await imported(small, empty)
        (conversation_id,) = (await everything(memory))["sam"]
        await memory.of("sam").append(conversation_id, [user("later")])
        await memory.of("sam").update(conversation_id, Changes(subject="later"))
        report = await imported(await exported(memory), empty)
        assert (report.copied, report.unchanged, report.entries) == (1, 1, 1)
        assert await everything(empty) == await everything(memory)

    async def test_what_has_expired_is_left_out_and_counted(
        self, memory: Backend, empty: Backend, clock: FixedClock, small: bytes
    ) -> None:
        (conversation_id,) = (await everything(memory))["sam"]
        await memory.of("sam").update(conversation_id, Changes(ttl=None))
        text = await exported(memory)
        clock.advance(timedelta(days=40))
        report = await imported(text, empty)
        assert (report.conversations, report.copied, report.expired) == (2, 1, 1)
        assert list((await everything(empty))["erin"]) == ["documents"]
        assert list((await everything(empty))["sam"]) == [conversation_id]


class TestStreams:
    async def test_a_pipe_is_read_to_its_end_first(self, small: bytes, empty: Backend) -> None:
        with _piped(small) as pipe:
            assert (await import_(pipe, empty)).copied == 2
        with _piped(small[:-5]) as pipe, pytest.raises(StoreDamaged, match="cut off"):
            await import_(pipe, empty)

    async def test_a_file_may_begin_with_something_else(self, small: bytes, empty: Backend) -> None:
        file = io.BytesIO(b"before" + small)
        file.seek(6)
        assert (await import_(file, empty)).copied == 2

    async def test_a_full_disk_is_reported(self, memory: Backend, small: bytes) -> None:
        with (
            Path("/dev/full").open("wb", buffering=0) as full,
            pytest.raises(StoreUnavailable, match="space"),
        ):
            await export(memory, full)


async def _redact(store: ConversationStore, conversation_id: str) -> None:
    await store.replace(conversation_id, user("[redacted]", message_id="m2"))


async def _clear(store: ConversationStore, conversation_id: str) -> None:
    await store.rewrite(conversation_id, ())


async def _delete(store: ConversationStore, conversation_id: str) -> None:
    await store.delete(conversation_id)


async def _say(store: ConversationStore, conversation_id: str) -> None:
    await store.append(conversation_id, [user("late")])


@pytest.mark.parametrize("kind", FEATURE_STORES)
class TestWhileTheSourceIsWrittenTo:
    @pytest.mark.parametrize("change", [_redact, _clear, _delete, _say])
    @pytest.mark.parametrize("method", ["sessions", "document_kinds"])
    async def test_what_changed_meanwhile_is_read_again(
        self,
        new_backend: NewBackend,
        empty: Backend,
        monkeypatch: pytest.MonkeyPatch,
        kind: str,
        method: str,
        change: Change,
    ) -> None:
        source = await new_backend(kind)
        await _in_three_messages(source.of("erin"))
        _before(method, [change], source.of("erin"), monkeypatch)
        await imported(await exported(source), empty)
        assert await everything(empty) == await everything(source)

    async def test_what_is_written_to_all_the_time_is_exported_as_it_was_a_moment_ago(
        self, new_backend: NewBackend, empty: Backend, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        source = await new_backend(kind)
        conversation_id = await _in_three_messages(source.of("erin"))
        _before("sessions", [_say] * 100, source.of("erin"), monkeypatch)
        await imported(await exported(source), empty)
        record = await empty.of("erin").get(conversation_id)
        assert record is not None
        assert record.message_count == len(await empty.of("erin").page(conversation_id, limit=200)) == 5


async def _in_three_messages(store: ConversationStore) -> str:
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [user(name, message_id=name) for name in ("m1", "m2", "m3")])
    await store.put_document("note", "a", b"x", conversation_id=record.id)
    return record.id


def _before(
    method: str, changes: list[Change], store: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have a change come before each of the first calls of this method about a conversation."""
    real = getattr(type(store), method)

    async def busy(self: ConversationStore, *given: str, **named: str | None) -> Any:
        conversation_id = next(iter((*given, *named.values())))
        if conversation_id is not None and changes:
            await changes.pop()(store, conversation_id)
        return await real(self, *given, **named)

    monkeypatch.setattr(type(store), method, busy)


def _piped(text: bytes) -> BinaryIO:
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(text)

    threading.Thread(target=write, daemon=True).start()
    return os.fdopen(reading, "rb")


any_text = st.text(st.characters(exclude_categories=[]), max_size=20)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


@examples()
@given(said=st.lists(st.tuples(any_json, st.dictionaries(any_text, any_json, max_size=2)), max_size=6))
async def test_any_content_survives(said: list[tuple[Any, dict[str, Any]]]) -> None:
    source, target = InMemoryBackend(), InMemoryBackend()
    store = source.of("erin")
    record = await store.create(started(new_id(), now=store.now()))
    await store.append(record.id, [Message(role="user", content=c, extra=e) for c, e in said])
    text = await exported(source)
    assert len(text.splitlines()) >= len(said)
    assert text.count(b"\n") == len(said) + 3
    report = await imported(text, target)
    assert report.copied == 1
    assert await everything(target) == await everything(source)
