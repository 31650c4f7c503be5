"""What a client reads is what the manager in the server's process reads: every reading call, equal values."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.memory.interface import ManagerProtocol
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.model.ids import new_id
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import Message
from aforesaid.retention.receipts import digest_of
from aforesaid.windows import WindowPolicy
from tests.builders import add_client, client_ids, content_types, json_contents, moments, names, tags
from tests.examples import examples
from tests.servers.remote import MemoryBehind, There

Read = Callable[[ManagerProtocol, str], Awaitable[Any]]

_NOW = datetime(2026, 3, 1, tzinfo=UTC)
_PENDING = Message(role="user", content="and now?", message_id="pending", timestamp=_NOW)
_HERE = ZoneInfo("Europe/Berlin")

READS: dict[str, Read] = {
    "archives": lambda m, c: m.archives(),
    "entries": lambda m, c: m.entries(c, 3, 1),
    "expiring": lambda m, c: m.expiring(timedelta(days=99)),
    "get_conversation": lambda m, c: m.get_conversation(c),
    "get_or_create_conversation": lambda m, c: m.get_or_create_conversation("s"),
    "lifetime": lambda m, c: m.lifetime(c),
    "list": lambda m, c: m.list(),
    "load_context": lambda m, c: m.load_context(c),
    "load_context of few tokens": lambda m, c: m.load_context(c, policy=WindowPolicy(max_tokens=60)),
    "load_context of an agent": lambda m, c: m.load_context(c, "one"),
    "load_context with pending": lambda m, c: m.load_context(c, pending=[_PENDING]),
    "first_context": lambda m, c: m.first_context([_PENDING]),
    "load_request": lambda m, c: m.load_request(c, "anthropic", pending=[_PENDING]),
    "messages": lambda m, c: m.messages(c),
    "notes": lambda m, c: m.notes(history=True),
    "recall": lambda m, c: m.recall("word"),
    "retention": lambda m, c: m.retention(),
    "search": lambda m, c: m.search("word", explain=True, timezone=_HERE),
    "search of a day": lambda m, c: m.search("yesterday", timezone=timezone(timedelta(hours=-3.5))),
    "search_conversations": lambda m, c: m.search_conversations("word", timezone=UTC),
    "search_history": lambda m, c: m.search_history("", timezone=_HERE),
    "session": lambda m, c: m.session("s"),
    "similar": lambda m, c: m.similar(c),
    "summary": lambda m, c: m.summary(c),
    "clients": lambda m, c: m.clients.list(),
}

said = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["user", "assistant", "system"]),
        content=json_contents | st.just("the word"),
        content_type=content_types,
        agent_name=st.none() | st.sampled_from(["one", "two"]),
        tags=st.lists(names, max_size=2).map(tuple),
        timestamp=st.none() | moments,
    ),
    min_size=1,
    max_size=6,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MemoryBehind, Any]]:
    with asyncio.Runner() as runner:
        folder = tmp_path_factory.mktemp("archives")
        memory = MemoryBehind("memory://", archives=folder, summarizer="extract")
        runner.run(memory.start())
        yield memory, runner.run
        runner.run(memory.close())


@pytest.mark.slow
@examples(15)
@given(said=said, subject=names, labels=tags, client_id=client_ids, note=names, ttl=st.integers(10**4, 10**9))
def test_both_read_the_same(
    served: tuple[MemoryBehind, Any],
    said: list[Message],
    subject: str,
    labels: list[str],
    client_id: str,
    note: str,
    ttl: int,
) -> None:
    memory, run = served
    owner = f"owner-{new_id()}"

    async def play() -> None:
        erin = memory.of(owner)
        there = cast(ConversationManager, There(memory.served.memory.of(owner), memory.served))
        made = await erin.get_or_create_conversation("s")
        await erin.append(made.id, said)
        await erin.update_metadata(
            made.id, subject=subject, tags=labels, ttl=timedelta(microseconds=ttl * 10**6)
        )
        await add_client(erin, client_id)
        await erin.associate_client(made.id, client_id, subject)
        await erin.set_retention(RetentionRules(tags={"x": timedelta(seconds=ttl)}, owner=None))
        await erin.remember(f"word {note}", tags=labels)
        await erin.clients.add(f"x{subject}", nicknames=["Word"])
        other = await erin.get_or_create_conversation("other")
        await erin.add_message(other.id, "user", "another word")
        await erin.archive((await erin.get_or_create_conversation("archived")).id)
        for name, read in READS.items():
            assert whole(await read(erin, made.id)) == whole(await read(there, made.id)), name
        receipt = await erin.erase()
        counted = {"conversations": 2, "sessions": 2, "notes": 1, "contacts": 2, "archives": 1}
        assert counted.items() <= receipt.erased.items()
        assert receipt.digest == digest_of(receipt)

    run(play())


def whole(value: Any) -> Any:
    """The value, with what its own comparison leaves out."""
    return (
        (value, [message.message_id for message in value.messages]) if isinstance(value, Context) else value
    )
