"""The client against a real server, over a real socket: what only a pair of both can show."""

import asyncio
import io
import threading
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import aforesaid
from aforesaid.agents import Assistants
from aforesaid.contacts import ClientAssociationService
from aforesaid.contracts import Change
from aforesaid.errors import (
    AforesaidError,
    ContactNotFound,
    ConversationNotFound,
    InvalidInput,
    InvalidSetting,
    KeyReused,
    MessageConflict,
    NotAllowed,
    NotAuthenticated,
    RevisionConflict,
    StoreClosed,
    StoreDamaged,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.remote import Client, Network, RemoteMemory, RetryPolicy
from aforesaid.server.auth.keys import ApiKeys
from aforesaid.transfer.zips import pack_folder, unpack_folder
from tests.servers.remote import Served, served

PATIENT_FOR = [(3.0, 45.0), (60.0, 60.0)]
"""Seconds for an answer, and what becomes of them where an answer goes on."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with served(f"sqlite:///{folder}/memory.db", archives=folder / "archives") as running:
        yield running


@pytest.fixture
async def memory(server: Served) -> AsyncIterator[RemoteMemory]:
    async with RemoteMemory(server.url) as memory:
        yield memory


@pytest.fixture
def owner() -> str:
    return f"erin-{new_id()}"


class TestCodeThatDoesNotAwait:
    def test_it_reads_as_the_other(self, server: Served, owner: str) -> None:
        with Client(server.url) as memory:
            erin = memory.of(owner)
            kitchen = erin.get_or_create_conversation("kitchen")
            erin.add_message(kitchen.id, "user", "hello")
            with erin.turn(kitchen.id) as turn:
                turn.user("is it raining?")
                assert turn.request("openai_chat")["messages"][-1] == {
                    "role": "user",
                    "content": "is it raining?",
                }
                turn.assistant("No.")
            assert turn.stored is not None
            assert len(turn.stored.new) == 2
            assert [m.content for m in erin.messages(kitchen.id)] == ["hello", "is it raining?", "No."]
            assert erin.search_history("raining")
            assert erin.session("nowhere") is None
            assert owner in list(memory.owners())

    def test_a_turn_that_fails_leaves_nothing(self, server: Served, owner: str) -> None:
        memory = Client(server.url).start()
        erin = memory.of(owner)
        kitchen = erin.get_or_create_conversation("kitchen")
        with pytest.raises(ZeroDivisionError), erin.turn(kitchen.id) as turn:
            turn.user("lost")
            turn.user(str(1 // 0))
        assert turn.stored is None
        assert erin.messages(kitchen.id) == []
        memory.close()

    def test_a_turn_that_is_over_takes_no_more_messages(self, server: Served, owner: str) -> None:
        with Client(server.url) as memory:
            erin = memory.of(owner)
            kitchen = erin.get_or_create_conversation("kitchen")
            with erin.turn(kitchen.id) as turn:
                turn.user("stored")
            with pytest.raises(AforesaidError, match="this turn is over"):
                turn.user("too late")

    def test_errors_are_the_same_with_their_data(self, server: Served, owner: str) -> None:
        with Client(server.url) as memory:
            erin = memory.of(owner)
            missing = new_id()
            with pytest.raises(ConversationNotFound) as gone:
                erin.get_conversation(missing)
            assert gone.value.conversation_id == missing
            kitchen = erin.get_or_create_conversation("kitchen")
            erin.add_message(kitchen.id, "user", "one", message_id="m1")
            with pytest.raises(MessageConflict) as taken:
                erin.add_message(kitchen.id, "user", "two", message_id="m1")
            assert (taken.value.conversation_id, taken.value.message_id) == (kitchen.id, "m1")
            with pytest.raises(RevisionConflict) as moved:
                erin.update_metadata(kitchen.id, subject="x", expected_revision=0)
            assert (moved.value.expected, moved.value.actual) == (0, 1)

    def test_contacts_notes_and_retention(self, server: Served, owner: str) -> None:
        with Client(server.url) as memory:
            erin = memory.of(owner)
            smith = erin.clients.add("Jane Smith", nicknames=["Janey"])
            assert erin.clients.get(smith.id) == smith
            assert list(erin.clients.every()) == [smith]
            assert erin.clients.update(smith.id, clear=["nicknames"]).nicknames == ()
            assert [erin.clients.remove(smith.id) for _ in range(2)] == [True, False]
            note = erin.remember("the door code is 7")
            assert erin.recall("door") == [note]
            assert erin.forget(note.id) == [note]
            assert erin.retention() == aforesaid.RetentionRules()

    def test_several_threads_share_a_client(self, server: Served, owner: str) -> None:
        with Client(server.url, network=Network(connections=4)) as memory:
            erin = memory.of(owner)
            kitchen = erin.get_or_create_conversation("kitchen")
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda n: erin.add_message(kitchen.id, "user", n), range(40)))
            said = {message.content for message in erin.messages(kitchen.id)}
            assert said == set(range(40))

    def test_a_watch_tells_of_changes(self, server: Served, owner: str) -> None:
        with Client(server.url) as memory:
            erin = memory.of(owner)
            kitchen = erin.get_or_create_conversation("kitchen")
            with erin.watch(kitchen.id) as changes:
                moved = erin.add_message(kitchen.id, "user", "hello")
                assert next(changes) == Change(conversation_id=kitchen.id, revision=moved.revision)

    @pytest.mark.parametrize(("seconds", "patient_for"), PATIENT_FOR)
    def test_a_watch_is_patient_until_heartbeats_fail(
        self, server: Served, owner: str, monkeypatch: pytest.MonkeyPatch, seconds: float, patient_for: float
    ) -> None:
        reads = _noting_read_timeouts(monkeypatch)
        patience = RetryPolicy(timeout=seconds)
        with (
            Client(server.url, network=Network(retry=patience, verify=False)) as memory,
            memory.of(owner).watch(),
        ):
            assert reads == [patient_for]


class TestWatching:
    async def test_another_clients_change_is_heard_of(
        self, server: Served, memory: RemoteMemory, owner: str
    ) -> None:
        async with memory.of(owner).watch() as changes, RemoteMemory(server.url) as other:
            made = await other.of(owner).get_or_create_conversation("kitchen")
            async with asyncio.timeout(120):
                assert (await anext(changes)).conversation_id == made.id

    @pytest.mark.parametrize(("seconds", "patient_for"), PATIENT_FOR)
    async def test_a_watch_is_patient_until_heartbeats_fail(
        self, server: Served, owner: str, monkeypatch: pytest.MonkeyPatch, seconds: float, patient_for: float
    ) -> None:
        """Whatever the patience for an answer: a server that is well may have nothing to tell."""
        reads = _noting_read_timeouts(monkeypatch)
        patience = RetryPolicy(timeout=seconds)
        remote = RemoteMemory(server.url, network=Network(retry=patience, verify=False))
        async with remote as memory, memory.of(owner).watch():
            assert reads == [patient_for]

    async def test_a_watch_ends_with_an_error_when_the_server_does(self) -> None:
        serving = served()
        running = await asyncio.to_thread(serving.__enter__)
        try:
            async with RemoteMemory(running.url) as memory:
                with pytest.raises(StoreUnavailable):
                    async with memory.of("erin").watch() as changes:
                        ending = asyncio.to_thread(serving.__exit__, None, None, None)
                        task = asyncio.create_task(ending)
                        running.drain()
                        async with asyncio.timeout(120):
                            await anext(changes)
                await task
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)


def _noting_read_timeouts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long an answer may be silent, for each request that is made from now on."""
    import httpx

    reads: list[float] = []
    made = httpx.Request.__init__

    def noting(self: httpx.Request, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        reads.append(self.extensions["timeout"]["read"])

    monkeypatch.setattr(httpx.Request, "__init__", noting)
    return reads


class TestKeys:
    async def test_a_key_reaches_its_owners_and_no_others(self, tmp_path: Path) -> None:
        with served(f"sqlite:///{tmp_path}/memory.db", open_without_keys=False) as running:
            keys = ApiKeys(running.memory.backend)
            text, _ = await asyncio.wrap_future(running.begin(keys.create(["erin"], scope="admin")))
            async with aforesaid.connect(running.url, key=text) as memory:
                made = await memory.of("erin").get_or_create_conversation("kitchen")
                assert [owner async for owner in memory.owners()] == ["erin"]
                with pytest.raises(NotAllowed):
                    await memory.of("sam").get_conversation(made.id)
                assert text not in repr(memory)
            for key in (None, "ak_wrong"):
                async with aforesaid.connect(running.url, key=key) as memory:
                    with pytest.raises(NotAuthenticated):
                        await memory.of("erin").get_conversation(made.id)


class TestFaces:
    """What is written for a manager works with one behind a server, which has no store here."""

    async def test_a_chat_history(self, memory: RemoteMemory, owner: str) -> None:
        chat = aforesaid.ChatHistory(memory.of(owner))
        await chat.save_turn("+1", [{"role": "user", "content": "hello"}])
        assert await chat.get_history("+1") == [{"role": "user", "content": "hello"}]
        await chat.clear_history("+1")
        assert await chat.get_history("+1") == []

    async def test_a_sliding_window(self, memory: RemoteMemory, owner: str) -> None:
        sliding = aforesaid.ConversationMemoryManager(memory.of(owner))
        await sliding.add_message("room", "user", "hello")
        assert [m["content"] for m in await sliding.get_messages("room")] == ["hello"]
        assert sliding.get_stats("room")["message_count"] == 1
        assert await sliding.get_all_conversations() == ["room"]
        await sliding.reset_conversation("room")
        assert await sliding.get_messages("room") == []

    async def test_an_assistant_that_remembers(self, memory: RemoteMemory, owner: str) -> None:
        assistants = Assistants()
        assistant = assistants.of(memory.of(owner))
        await assistant.process_query("remember that the door code is seven", "terminal")
        answer = await assistant.process_query("what do you know about the door code?", "terminal")
        assert "door code is seven" in answer
        await assistants.close()

    async def test_clients_are_named_linked_and_unlinked(self, memory: RemoteMemory, owner: str) -> None:
        erin = memory.of(owner)
        service = ClientAssociationService(erin)
        mary = await erin.clients.add("Mary Johnson")
        await erin.clients.add("Peter Johnson")
        named = await service.identify_client("Mary Johnson's house")
        assert named is not None
        assert named.client == mary
        several = await service.identify_client("the Johnson house")
        assert several is not None
        assert several.ambiguous
        assert await service.identify_client("turn off the lights") is None
        kitchen = await erin.get_or_create_conversation("kitchen")
        for client in (named, mary, mary.id, "Mary Johnson called"):
            linked = await service.link_conversation_to_client(kitchen.id, client)
            assert linked is not None
            assert (linked.client_id, linked.client_name) == (mary.id, "Mary Johnson")
            assert (await service.unlink_conversation(kitchen.id)).client_id is None
        assert await service.link_conversation_to_client(kitchen.id, several) is None
        assert await service.link_conversation_to_client(kitchen.id, "Johnson called") is None
        with pytest.raises(InvalidInput):
            await service.link_conversation_to_client(kitchen.id, None)  # type: ignore[arg-type]
        with pytest.raises(ContactNotFound):
            await service.link_conversation_to_client(kitchen.id, new_id())
        with pytest.raises(ConversationNotFound):
            await service.unlink_conversation(new_id())

    async def test_the_store_itself_is_not_there_and_says_so(self, memory: RemoteMemory) -> None:
        with pytest.raises(InvalidSetting, match="not available through a server"):
            _ = memory.of("erin").store
        with pytest.raises(InvalidSetting, match="not available through a server"):
            await memory.sweep()


class _LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        return await asyncio.wait_for(asyncio.wrap_future(future), 120)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


@pytest.fixture
def loops() -> Iterator[list[_LoopThread]]:
    loops = [_LoopThread(), _LoopThread()]
    yield loops
    for loop in loops:
        loop.stop()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[httpx.AsyncClient]:
    """Every httpx client that is created."""
    created: list[httpx.AsyncClient] = []
    original = httpx.AsyncClient.__init__

    def init(self: httpx.AsyncClient, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        created.append(self)

    monkeypatch.setattr(httpx.AsyncClient, "__init__", init)
    return created


class TestSeveralEventLoops:
    async def test_each_loop_has_one_client_and_closing_closes_all(
        self, server: Served, owner: str, loops: list[_LoopThread], clients: list[httpx.AsyncClient]
    ) -> None:
        memory = RemoteMemory(server.url)
        await loops[0].run(memory.start())
        erin = memory.of(owner)
        for loop in (*loops, *loops):
            await loop.run(erin.get_or_create_conversation("kitchen"))
        assert len(clients) == len(loops)
        await loops[0].run(memory.close())
        await loops[1].run(asyncio.sleep(0))  # one turn of the loop in which the other client closes
        assert [client.is_closed for client in clients] == [True, True]
        for loop in loops:
            with pytest.raises(StoreClosed):
                await loop.run(erin.get_or_create_conversation("kitchen"))

    async def test_calls_of_two_loops_at_once_are_answered(
        self, server: Served, owner: str, loops: list[_LoopThread], clients: list[httpx.AsyncClient]
    ) -> None:
        async with RemoteMemory(server.url) as memory:
            erin = memory.of(owner)
            kitchen = (await erin.get_or_create_conversation("kitchen")).id

            async def write(name: str) -> None:
                for n in range(5):
                    await erin.add_message(kitchen, "user", f"{name} {n}")

            await asyncio.gather(loops[0].run(write("a")), loops[1].run(write("b")), write("c"))
            assert (await erin.get_conversation(kitchen)).message_count == 15
        for loop in loops:
            await loop.run(asyncio.sleep(0))
        assert [client.is_closed for client in clients] == [True, True, True]


class TestBeingSentAgain:
    async def test_a_turn_whose_response_was_lost_is_stored_once_and_reported_as_new(
        self, memory: RemoteMemory, owner: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first attempt arrives, and its response is lost."""
        erin = memory.of(owner)
        kitchen = await erin.get_or_create_conversation("kitchen")
        lost = _losing_the_first_answer(memory, monkeypatch)
        stored = await erin.append(kitchen.id, [Message(role="user", content="once")])
        assert lost == ["lost"]
        assert len(stored.new) == 1
        assert [m.content for m in await erin.messages(kitchen.id)] == ["once"]

    async def test_a_turn_of_a_session_is_stored_once_though_the_session_was_left_before_it_was_sent_again(
        self, memory: RemoteMemory, owner: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        erin = memory.of(owner)

        async def leave() -> None:
            await erin.leave_session("kitchen")

        lost = _losing_the_first_answer(memory, monkeypatch, meanwhile=leave)
        stored = await erin.append_to_session("kitchen", [Message(role="user", content="once")])
        assert lost == ["lost"]
        assert len(stored.new) == 1
        page = await erin.list()
        assert [(record.id, record.message_count) for record in page.conversations] == [
            (stored.conversation.id, 1)
        ]

    async def test_a_turn_that_is_said_twice_in_a_session_is_known_the_second_time(
        self, memory: RemoteMemory, owner: str
    ) -> None:
        erin, said = memory.of(owner), [Message(role="user", content="once", message_id="m-1")]
        await erin.append_to_session("kitchen", said)
        again = await erin.append_to_session("kitchen", said)
        assert ([entry.message.content for entry in again.known], again.new) == (["once"], ())

    async def test_a_key_that_was_used_for_something_else_is_refused(
        self, memory: RemoteMemory, owner: str
    ) -> None:
        from msgspec.structs import replace

        erin = memory.of(owner)
        kitchen = await erin.get_or_create_conversation("kitchen")
        key = {"idempotency-key": new_id()}
        for content, refused in (("a", False), ("b", True)):
            call = erin.calls.append(kitchen.id, [Message(role="user", content=content)])
            sending = memory.sender.run(replace(call, headers={**call.headers, **key}))
            if refused:
                with pytest.raises(KeyReused):
                    await sending
            else:
                await sending


async def _nothing() -> None: ...


def _losing_the_first_answer(
    memory: RemoteMemory,
    monkeypatch: pytest.MonkeyPatch,
    *,
    meanwhile: Callable[[], Awaitable[None]] = _nothing,
) -> list[str]:
    """The way back is cut once, after the request was answered."""
    import httpx

    lost: list[str] = []
    read = httpx.Response.aread

    async def aread(self: httpx.Response) -> bytes:
        content = await read(self)
        if not lost and self.request.method == "POST":
            lost.append("lost")
            await meanwhile()
            raise httpx.ReadError("the connection was cut")
        return content

    monkeypatch.setattr(httpx.Response, "aread", aread)
    return lost


class TestFolders:
    async def test_out_and_back_for_another_owner(
        self, memory: RemoteMemory, owner: str, tmp_path: Path
    ) -> None:
        erin, sam = memory.of(owner), memory.of(f"sam-{new_id()}")
        kitchen = await erin.get_or_create_conversation("kitchen")
        await erin.add_message(kitchen.id, "user", "hello")
        manifest = await erin.export(tmp_path / "out")
        assert manifest.counts["messages"] == 1
        assert (await sam.import_(tmp_path / "out")).counts == manifest.counts
        assert [m.content for m in await sam.messages(kitchen.id)] == ["hello"]
        with pytest.raises(InvalidSetting, match="already exists"):
            await erin.export(tmp_path / "out")

    @pytest.fixture
    async def packed(self, tmp_path: Path) -> bytes:
        async with aforesaid.open() as memory:
            await memory.of("erin").get_or_create_conversation("kitchen")
            await memory.of("erin").export(tmp_path / "folder")
        file = io.BytesIO()
        await asyncio.to_thread(pack_folder, tmp_path / "folder", file)
        return file.getvalue()

    async def unpacked(self, content: bytes, folder: Path) -> Any:
        return await asyncio.to_thread(unpack_folder, io.BytesIO(content), folder)

    async def test_what_was_packed_is_unpacked(self, packed: bytes, tmp_path: Path) -> None:
        manifest = await self.unpacked(packed, tmp_path / "again")
        assert manifest.owner == "erin"
        assert {path.name for path in (tmp_path / "again").iterdir()} == {
            path.name for path in (tmp_path / "folder").iterdir()
        }

    @pytest.mark.parametrize("name", ["../evil", "/etc/evil", "evil.txt", "blobs/../../evil", ""])
    async def test_what_no_export_has_is_refused(self, packed: bytes, tmp_path: Path, name: str) -> None:
        file = io.BytesIO(packed)
        with zipfile.ZipFile(file, "a") as added:
            added.writestr(name or "archives/", b"evil")
        with pytest.raises((StoreDamaged, StoreForeign)):
            await self.unpacked(file.getvalue(), tmp_path / "again")
        assert not (tmp_path / "again").exists()
        assert not list(tmp_path.rglob("*evil*"))

    async def test_what_is_longer_than_it_says_is_refused(self, packed: bytes, tmp_path: Path) -> None:
        """As a bomb would be."""
        file, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(packed))
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bomb:
            for name in source.namelist():
                padding = b" " * 10_000_000 if name == "index.html" else b""
                bomb.writestr(name, source.read(name) + padding)
        with pytest.raises(StoreDamaged, match="longer"):
            await self.unpacked(file.getvalue(), tmp_path / "again")
        assert not (tmp_path / "again").exists()

    @pytest.mark.parametrize("at", [2, 30, 60])
    async def test_flipped_bits_are_refused(self, packed: bytes, tmp_path: Path, at: int) -> None:
        name = "conversations.jsonl"
        begin = zipfile.ZipFile(io.BytesIO(packed)).getinfo(name).header_offset + 30 + len(name)
        damaged = bytearray(packed)
        damaged[begin + at] ^= 0xFF
        with pytest.raises((StoreDamaged, StoreForeign)):
            await self.unpacked(bytes(damaged), tmp_path / "again")
        assert not (tmp_path / "again").exists()

    @pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    async def test_what_is_packed_as_no_export_is_refused(
        self, packed: bytes, tmp_path: Path, way: int
    ) -> None:
        file, source = io.BytesIO(), zipfile.ZipFile(io.BytesIO(packed))
        with zipfile.ZipFile(file, "w", way) as other:
            for name in source.namelist():
                other.writestr(name, source.read(name))
        with pytest.raises(StoreForeign, match="unsupported compression or is encrypted"):
            await self.unpacked(file.getvalue(), tmp_path / "again")

    async def test_what_is_encrypted_is_refused(self, packed: bytes, tmp_path: Path) -> None:
        entry = b"PK\x01\x02\x14\x03\x14\0"
        assert entry + b"\0\0" in packed
        with pytest.raises(StoreForeign, match="unsupported compression or is encrypted"):
            await self.unpacked(packed.replace(entry + b"\0\0", entry + b"\1\0"), tmp_path / "again")

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    @pytest.mark.parametrize("name", ["manifest.json", "conversations.jsonl"])
    async def test_a_name_that_comes_twice_is_refused(self, packed: bytes, tmp_path: Path, name: str) -> None:
        file = io.BytesIO(packed)
        with zipfile.ZipFile(file, "a") as twice:
            twice.writestr(name, twice.read(name))
        with pytest.raises(StoreDamaged, match="twice"):
            await self.unpacked(file.getvalue(), tmp_path / "again")

    @pytest.mark.parametrize("cut", [0, 1, 100, -1, -30])
    async def test_half_a_file_is_refused(self, packed: bytes, tmp_path: Path, cut: int) -> None:
        with pytest.raises((StoreDamaged, StoreForeign, StoreUnavailable)):
            await self.unpacked(packed[:cut], tmp_path / "again")
        assert not (tmp_path / "again").exists()
