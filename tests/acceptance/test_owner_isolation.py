"""Every public call of a manager, on every store, with another owner's ids reveals and changes nothing.

The calls are found by looking, so that a new one without a case here fails the first test.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Struct

import aforesaid
from aforesaid.contracts import JOURNAL, Appended
from aforesaid.dialects import Request
from aforesaid.errors import AforesaidError, InvalidId
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import Conversation, Page
from aforesaid.model.ids import new_id
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import Message
from aforesaid.notes.records import Note, Source
from aforesaid.remote import RemoteManager
from aforesaid.retention.receipts import Receipt
from aforesaid.settings import ConversationConfig
from aforesaid.stores._worker import WorkerThreads
from aforesaid.stores.json_file.backend import JsonFileBackend
from aforesaid.stores.memory import InMemoryStore
from aforesaid.stores.postgres.backend import PostgresBackend
from aforesaid.stores.redis.connections import Connections
from aforesaid.transfer.folders import Manifest
from tests.builders import TARGETS, url_for
from tests.examples import examples
from tests.report import MATRIX
from tests.servers.remote import open_at
from tests.unit.retention.test_archives import live
from tests.unit.retention.test_owner_folders import whole

SECRET = "lemon chicken"
SUBJECT = "dinner on Sunday"


class Names(Struct, frozen=True):
    """What an attacker knows, or guesses."""

    conversation: str
    session: str
    message: str
    archived: str
    note: str


Case = Callable[[ConversationManager, Names, Path], Awaitable[Any]]


async def _turn(manager: ConversationManager, names: Names, folder: Path) -> Any:
    async with manager.turn(names.conversation) as turn:
        turn.user("x", message_id=names.message)
        seen = (await turn.request("plain"))["messages"]
        assert SECRET not in str(seen)
    return turn.stored


async def _watch(manager: ConversationManager, names: Names, folder: Path) -> Any:
    async with manager.watch(names.conversation):
        return "watching"


async def _associate(manager: ConversationManager, names: Names, folder: Path) -> Any:
    contact = await manager.clients.add("x")
    return await manager.associate_client(names.conversation, contact.id, "x")


async def _import(manager: ConversationManager, names: Names, folder: Path) -> Any:
    target = folder / new_id()
    await manager.export(target)
    return await manager.import_(target)


CASES: dict[str, Case] = {
    "add_message": lambda m, n, f: m.add_message(n.conversation, "user", "x", message_id=n.message),
    "analytics": lambda m, n, f: m.analytics(by="client"),
    "append": lambda m, n, f: m.append(n.conversation, [Message(role="user", content="x")]),
    "append_to_session": lambda m, n, f: m.append_to_session(n.session, [Message(role="user", content="x")]),
    "apply_retention": lambda m, n, f: m.apply_retention(),
    "as_participant": lambda m, n, f: m.as_participant("ann").messages(n.conversation),
    "assign": lambda m, n, f: m.assign(n.conversation, "sam"),
    "archive": lambda m, n, f: m.archive(n.conversation),
    "archives": lambda m, n, f: m.archives(),
    "associate_client": _associate,
    "branches": lambda m, n, f: m.branches(n.conversation),
    "clear_history": lambda m, n, f: m.clear_history(n.conversation),
    "compare": lambda m, n, f: m.compare(n.conversation, n.conversation),
    "delete_conversation": lambda m, n, f: m.delete_conversation(n.conversation),
    "delete_session": lambda m, n, f: m.delete_session(n.session, tag="food"),
    "rewrite_history": lambda m, n, f: m.rewrite_history(
        n.conversation, [Message(role="user", content="forged")]
    ),
    "put_document": lambda m, n, f: m.put_document("k", "d", b"forged", conversation_id=n.conversation),
    "get_document": lambda m, n, f: m.get_document("k", "d", conversation_id=n.conversation),
    "list_documents": lambda m, n, f: m.list_documents("k", conversation_id=n.conversation),
    "delete_document": lambda m, n, f: m.delete_document("k", "d", conversation_id=n.conversation),
    "discard_turn": lambda m, n, f: m.discard_turn(n.conversation, n.message),
    "entries": lambda m, n, f: m.entries(n.conversation),
    "erase": lambda m, n, f: m.erase(n.conversation),
    "erase_participant": lambda m, n, f: m.erase_participant("ann"),
    "expiring": lambda m, n, f: m.expiring(),
    "export": lambda m, n, f: m.export(f / new_id()),
    "first_context": lambda m, n, f: m.first_context([Message(role="user", content="x")]),
    "forget": lambda m, n, f: m.forget(n.note),
    "fork": lambda m, n, f: m.fork(n.conversation, at=n.message),
    "get_conversation": lambda m, n, f: m.get_conversation(n.conversation),
    "get_note": lambda m, n, f: m.get_note(n.note),
    "get_or_create_conversation": lambda m, n, f: m.get_or_create_conversation(n.session),
    "import_": _import,
    "interrupted": lambda m, n, f: m.interrupted(n.conversation, n.message, heard=0),
    "leave_session": lambda m, n, f: m.leave_session(n.session),
    "link": lambda m, n, f: m.link(n.conversation, n.archived),
    "links": lambda m, n, f: m.links(n.conversation),
    "merge": lambda m, n, f: m.merge(n.conversation, n.conversation),
    "unlink": lambda m, n, f: m.unlink(n.conversation, n.archived),
    "lifetime": lambda m, n, f: m.lifetime(n.conversation),
    "list": lambda m, n, f: m.list(tags=["food"]),
    "load_context": lambda m, n, f: m.load_context(n.conversation),
    "load_request": lambda m, n, f: m.load_request(n.conversation, "anthropic"),
    "mark_read": lambda m, n, f: m.mark_read(n.conversation),
    "mark_read_up_to": lambda m, n, f: m.mark_read_up_to(n.conversation, n.message, participant_id="ann"),
    "messages": lambda m, n, f: m.messages(n.conversation),
    "notes": lambda m, n, f: m.notes(history=True),
    "notifications": lambda m, n, f: m.notifications(participant_id="ann"),
    "open_turn": lambda m, n, f: m.open_turn(
        n.conversation, [Message(role="user", content="x", message_id=n.message)]
    ),
    "participants": lambda m, n, f: m.participants(n.conversation),
    "purge_expired": lambda m, n, f: m.purge_expired(),
    "read_markers": lambda m, n, f: m.read_markers(n.conversation),
    "recall": lambda m, n, f: m.recall(SECRET),
    "recompute_analytics": lambda m, n, f: m.recompute_analytics(),
    "redact": lambda m, n, f: m.redact(n.conversation, n.message),
    "remember": lambda m, n, f: m.remember("x", subject=SUBJECT, source=Source(message_id=n.message)),
    "remove_participant": lambda m, n, f: m.remove_participant(n.conversation, "ann"),
    "restore": lambda m, n, f: m.restore(n.archived),
    "retention": lambda m, n, f: m.retention(),
    "search": lambda m, n, f: m.search(SECRET),
    "search_conversations": lambda m, n, f: m.search_conversations(SECRET),
    "search_history": lambda m, n, f: m.search_history(SECRET),
    "session": lambda m, n, f: m.session(n.session),
    "set_notification_rule": lambda m, n, f: m.set_notification_rule(
        n.conversation, "none", participant_id="ann"
    ),
    "set_participant": lambda m, n, f: m.set_participant(n.conversation, "ann", role="manager"),
    "set_retention": lambda m, n, f: m.set_retention(
        RetentionRules(owner=None, conversations={n.conversation: None})
    ),
    "similar": lambda m, n, f: m.similar(n.conversation),
    "summarize": lambda m, n, f: m.summarize(n.conversation),
    "summary": lambda m, n, f: m.summary(n.conversation),
    "take_notifications": lambda m, n, f: m.take_notifications(participant_id="ann"),
    "turn": _turn,
    "unanswered": lambda m, n, f: m.unanswered(n.conversation),
    "delete_topic": lambda m, n, f: m.delete_topic(SUBJECT),
    "delete_webhook": lambda m, n, f: m.delete_webhook("ann"),
    "forget_everywhere": lambda m, n, f: m.forget_everywhere(n.note),
    "notification_rule": lambda m, n, f: m.notification_rule(n.conversation, participant_id="ann"),
    "preview_forget": lambda m, n, f: m.preview_forget(n.note),
    "preview_redact": lambda m, n, f: m.preview_redact(n.conversation, n.message),
    "redact_everywhere": lambda m, n, f: m.redact_everywhere(n.conversation, n.message),
    "set_topic": lambda m, n, f: m.set_topic(SUBJECT, ["x"]),
    "set_webhook": lambda m, n, f: m.set_webhook("ann", "https://example.test/hook", secret="s" * 32),
    "topic_report": lambda m, n, f: m.topic_report(),
    "topics": lambda m, n, f: m.topics(),
    "webhooks": lambda m, n, f: m.webhooks(),
    "unread": lambda m, n, f: m.unread(n.conversation, participant_id="ann"),
    "watch": _watch,
    "update_metadata": lambda m, n, f: m.update_metadata(n.conversation, subject="x", tags=["y"]),
}
WITHOUT_STORE = {"calibrate", "counting_with", "idling_after", "now", "with_policy"}
"""Calls that give another handle to the same owner, or that concern no data."""
LEAVING = {
    "append_to_session", "get_or_create_conversation", "import_", "remember", "set_retention",
    "set_topic", "set_webhook",
}  # fmt: skip
"""Calls after which an attacker has something of their own: what comes next must not find it."""
SLOW = {"erase", "erase_participant"}
"""Calls that make a server write its files anew."""
PARTS = len(TARGETS)


def test_every_public_call_has_a_case() -> None:
    public = {
        name
        for name, _ in inspect.getmembers(ConversationManager, inspect.isfunction)
        if not name.startswith("_")
    }
    assert public == CASES.keys() | WITHOUT_STORE


HOSTILE = [
    ("a:b", "a"),
    ("a", "a:b"),
    ("../x", "x"),
    ("*", "erin"),
    ("erin", "*"),
    ("{t}", "t"),
    ("%", "erin_"),
    ("é", "e\u0301"),
    ("erin", "еrin"),  # a Cyrillic letter
    ("erin", "ERIN"),
    ("x" * 1024, "x" * 1023 + "y"),
    ("sha256/" + "0" * 64, "sha256/"),
    ("' OR '1'='1", "' OR ''='"),
    ("erin\u200b", "erin"),
]
"""Who is attacked, and who attacks."""


@pytest.mark.parametrize("owner", ["", "a\0b", "x" * 4096, "\ud800", None, 7, JOURNAL])
async def test_what_is_no_owner_is_refused(owner: Any) -> None:
    async with aforesaid.open("memory://", retention=aforesaid.Retention(sweep_every=None)) as memory:
        with pytest.raises(InvalidId, match="owner"):
            memory.of(owner)


class Counter:
    """How often a store was asked: what an attacker could measure from outside."""

    def __init__(self) -> None:
        self.asked = 0

    @contextmanager
    def watching(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        with patch.context() as patched:
            for kind, names in (
                (InMemoryStore, ("_data", "_write")),
                (JsonFileBackend, ("owner_data", "write")),
                (WorkerThreads, ("run",)),
                (Connections, ("call", "run")),
                (PostgresBackend, ("run", "connection")),
            ):
                for name in names:
                    patched.setattr(kind, name, self._counting(getattr(kind, name)))
            yield

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            # How long a server takes to write its files anew says nothing about what is in them.
            self.asked += given[1:2] not in (("INFO",), ("CONFIG",), ("BGREWRITEAOF",), ("BGSAVE",))
            return call(*given, **named)

        return counted


async def outcome(case: Case, manager: ConversationManager, names: Names, folder: Path) -> Any:
    """What a caller learns, with the names that it gave taken out."""
    try:
        learned: Any = ("answer", facts(await case(manager, names, folder)))
    except AforesaidError as error:
        learned = ("error", type(error).__name__, str(error))
    text = repr(learned)
    assert SECRET not in text
    for name in (names.conversation, names.session, names.message, names.archived, names.note):
        text = text.replace(name, "…")
    return text


def facts(value: Any) -> Any:
    """What an answer says, without ids and moments that are new every time."""
    match value:
        case Conversation():
            return "record", value.message_count, value.subject, value.tags, value.client_name, value.revision
        case Appended():
            return "appended", facts(value.conversation), len(value.new), len(value.known)
        case Page():
            return [facts(one) for one in value.conversations]
        case list():
            return [facts(one) for one in value]
        case Message():
            return value.role, value.content
        case aforesaid.Context():
            return [facts(one) for one in value.messages], value.report.warnings
        case int() | None | str() | RetentionRules():
            return value
        case Receipt():
            return value.erased, value.remains
        case Manifest():
            return value.counts
        case Request():
            return value.messages, value.system
        case Note():
            return value.text, value.subject, value.replaced_by
    return type(value).__name__


class OwnerPair:
    """A victim with all that one can have, and an attacker."""

    def __init__(self, memory: aforesaid.Memory, folder: Path, victim: str, attacker: str) -> None:
        self._memory = memory
        self._folder = folder
        self.victim = memory.of(victim)
        self._attacker = attacker

    async def furnish(self) -> None:
        """On a server others may have left something under the same names."""
        await self.clear()
        archived = await live(self.victim, session="before")
        await self.victim.archive(archived)
        conversation = await live(self.victim)
        note = await self.victim.remember(SECRET, subject=SUBJECT)
        self.theirs = Names(conversation, "kitchen", "m1", archived, note.id)
        self.nowhere = Names(new_id(), "no kitchen", "m0", new_id(), new_id())
        self.before = await whole(self.victim)

    async def attack(self, name: str, patch: pytest.MonkeyPatch) -> None:
        """Make the same call with the victim's names and with unknown names: there is no difference."""
        learned = []
        for names in (self.theirs, self.nowhere):
            attacker = self._memory.of(self._attacker)
            counter = Counter()
            with counter.watching(patch):
                describe = await outcome(CASES[name], attacker, names, self._folder)
            # A server asks its store about keys, too, now and then.
            learned.append((describe, 0 if isinstance(attacker, RemoteManager) else counter.asked))
            await self._memory.search_resources.remove_copies(self._attacker, None)
            if name in LEAVING:
                await attacker.store.clear()
        assert learned[0] == learned[1], name

    async def check_untouched(self, *calls: str) -> None:
        """Nothing puts back what another call took or changed, so a look after all of them sees each."""
        assert await whole(self.victim) == self.before, calls

    async def clear(self) -> None:
        for owner in (self.victim, self._memory.of(self._attacker)):
            archives, blobs = owner.scope.archives, owner.scope.blobs
            assert archives is not None
            assert blobs is not None
            await owner.store.clear()
            for archive in await owner.archives():
                await archives.delete(archive.conversation_id)
            for conversation_id in await blobs.conversations():
                await blobs.delete(conversation_id)


@pytest.fixture(autouse=True)
def written_at_leisure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about power cuts, and thousands of small files would each wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=TARGETS)
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with open_at(
        url_for(request.param, tmp_path, request),
        sweep_every=None,
        images="blobs",
        blobs=tmp_path / "blobs",
        archives=tmp_path / "archives",
        resilience="off",
        embedder=None,  # nothing goes on in the background while questions are counted
        config=ConversationConfig(enable_client_association=False),
    ) as memory:
        yield memory


def calls_for(store: str, pair: int) -> list[str]:
    """Return every call for the first pair, and a part of them for any other pair.

    The part moves with pair and store: each call runs with each pair on one store.
    """
    if pair == 0:
        return sorted(CASES)
    start = (TARGETS.index(store) + pair) % PARTS
    return sorted(CASES.keys() - SLOW)[0 if MATRIX else start :: 1 if MATRIX else PARTS]


def test_each_call_runs_on_each_store_and_with_each_pair() -> None:
    pairs = range(len(HOSTILE))
    for store in TARGETS:
        assert {call for pair in pairs for call in calls_for(store, pair)} == set(CASES)
    for pair in pairs[1:]:
        assert {call for store in TARGETS for call in calls_for(store, pair)} == CASES.keys() - SLOW


@pytest.mark.parametrize("pair", range(len(HOSTILE)))
async def test_not_yours_is_not_there(
    memory: aforesaid.Memory,
    tmp_path: Path,
    pair: int,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    victim, attacker = HOSTILE[pair]
    owners = OwnerPair(memory, tmp_path, victim, attacker)
    await owners.furnish()
    calls = calls_for(request.node.callspec.params["memory"], pair)
    for name in calls:
        await owners.attack(name, monkeypatch)
    await owners.check_untouched(*calls)
    await owners.clear()


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("ab:*{}%_/.'\\"),
    min_size=1,
    max_size=6,
)


@examples(10)
@given(victim=names, attacker=names, calls=st.lists(st.sampled_from(sorted(CASES.keys() - SLOW)), max_size=5))
def test_any_two_owners_and_any_calls(
    opened_store: Any, victim: str, attacker: str, calls: list[str], tmp_path: Path
) -> None:
    assume(victim != attacker)
    memory, run = opened_store

    async def play() -> None:
        owners = OwnerPair(memory, tmp_path, victim, attacker)
        await owners.furnish()
        with pytest.MonkeyPatch.context() as patch:
            for call in calls:
                await owners.attack(call, patch)
        await owners.check_untouched(*calls)
        await owners.clear()

    run(play())


@pytest.fixture(params=TARGETS)
def opened_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    runner = asyncio.Runner()
    memory = open_at(
        url_for(request.param, tmp_path, request),
        sweep_every=None,
        images="blobs",
        blobs=tmp_path / "blobs",
        archives=tmp_path / "archives",
        resilience="off",
        embedder=None,  # nothing goes on in the background while questions are counted
        config=ConversationConfig(enable_client_association=False),
    )
    runner.run(memory.start())
    yield memory, runner.run
    runner.run(memory.close())
    runner.close()


BY_CONVERSATION = ("get_conversation", "messages", "add_message", "archive", "redact", "clear_history")
NO_IDS: tuple[Any, ...] = ("", "x" * 4096, "a\0b", "\ud800", 7)


async def test_hostile_conversation_ids_are_refused_alike(memory: aforesaid.Memory, tmp_path: Path) -> None:
    for name in (*BY_CONVERSATION, "erase", "restore"):
        for hostile in NO_IDS if name == "erase" else (*NO_IDS, None):
            with pytest.raises(InvalidId):
                await CASES[name](memory.of("erin"), Names(hostile, "s", "m", hostile, "n"), tmp_path)


async def test_a_hostile_session_id_is_a_name_like_any_other(memory: aforesaid.Memory) -> None:
    for session in ("a:b", "../x", "*", "{t}", "x" * 1024, "ａ"):
        await _check_session(memory, session)


async def _check_session(memory: aforesaid.Memory, session: str) -> None:
    erin, bob = memory.of("erin-s"), memory.of("bob-s")
    mine = await erin.get_or_create_conversation(session)
    theirs = await bob.get_or_create_conversation(session)
    assert mine.id != theirs.id
    for other in ("a", "x", "t", "?", "b", "a*"):
        assert await erin.session(other) is None
    await bob.delete_conversation(theirs.id)
    bound = await erin.session(session)
    assert bound is not None
    assert bound.id == mine.id
    await erin.store.clear()
