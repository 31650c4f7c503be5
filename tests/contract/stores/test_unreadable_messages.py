"""A message that cannot be read is reported and set aside; the rest of its conversation loads.

On every store one stored message is damaged for real: in the table, in the file, on the server.
"""

import io
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import aforesaid
from aforesaid import transfer
from aforesaid.contracts import Entry
from aforesaid.errors import InvalidInput, MessageConflict, StoreDamaged
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message, Role
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.telemetry import telemetry
from aforesaid.windows import WindowPolicy
from tests.builders import STORES, url_for
from tests.stored_bodies import damage_record, edit_bodies

WITHOUT_A_ROLE = b'{"content":"the secret word"}'
OTHER_DAMAGES = {
    "memory": [b"{", b"", b"[]", b"\xff\xfe", b"[" * 100_000],
    "sqlite": [b"{", b"", b"[]", b"\xff\xfe", b"[" * 100_000],
    "file": [b"[]", b"null", b'{"role":"pirate","content":"arr"}', b'{"role":"user","timestamp":7}'],
    "redis": [b"{", b"", b"[]", b"\xff\xfe", b"[" * 100_000],
    "postgres": [b"{", b"", b"[]", b"[" * 100_000],
}


class Damaged:
    """A conversation of five messages, of which the third can be damaged."""

    def __init__(self, memory: aforesaid.Memory, store: str) -> None:
        self.memory = memory
        self.store_name = store
        self.owner = f"owner-{new_id()}"
        self.erin: ConversationManager = memory.of(self.owner)
        self.id = new_id()

    async def fill(self) -> None:
        store = self.erin.store
        await store.create(started(self.id, now=store.now()))
        await store.append(self.id, [Message(role="system", content="be kind", message_id="m1")])
        for number in range(2, 6):
            role: Role = "assistant" if number % 2 else "user"
            message = Message(role=role, content=f"words {number}", message_id=f"m{number}")
            await store.append(self.id, [message])

    async def damage(self, body: bytes = WITHOUT_A_ROLE, *, sequence: int = 3) -> None:
        def edit(bodies: dict[int, bytes]) -> None:
            bodies[sequence] = body

        await edit_bodies(self.memory.backend, self.owner, self.id, edit)

    async def entries(self) -> list[Entry]:
        return await self.erin.store.page(self.id, limit=99)


@pytest.fixture(params=STORES)
async def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Damaged]:
    url = url_for(request.param, tmp_path, request)
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        layers=aforesaid.Layers(resilience="off", cache="off"),
    ) as memory:
        one = Damaged(memory, request.param)
        await one.fill()
        yield one
        await one.erin.delete_conversation(one.id)


async def test_its_entry_says_why_and_the_others_are_as_they_were(damaged: Damaged) -> None:
    before = await damaged.entries()
    await damaged.damage()
    for after in (await damaged.entries(), await damaged.erin.store.tail(damaged.id, limit=99)):
        assert [entry.sequence for entry in after] == [1, 2, 3, 4, 5]
        assert [entry for entry in after if entry.sequence != 3] == [e for e in before if e.sequence != 3]
        bad = after[2]
        assert bad.unreadable
        assert "damaged" in bad.unreadable
        assert "secret" not in bad.unreadable
        assert (bad.revision, bad.stored_at) == (before[2].revision, before[2].stored_at)
        assert (bad.message.role, bad.message.content) == ("system", "")
    older = await damaged.erin.store.tail(damaged.id, limit=9, before=after[2].position)
    assert [entry.sequence for entry in older] == [1, 2]


async def test_whatever_the_damage_is(damaged: Damaged) -> None:
    for body in OTHER_DAMAGES[damaged.store_name]:
        await damaged.damage(body)
        entries = await damaged.entries()
        assert [entry.unreadable is None for entry in entries] == [True, True, False, True, True], body


async def test_a_window_leaves_it_out_and_says_so(damaged: Damaged, caplog: pytest.LogCaptureFixture) -> None:
    await damaged.damage()
    for policy in (WindowPolicy(max_messages=20), WindowPolicy()):
        with caplog.at_level(logging.WARNING):
            context = await damaged.erin.load_context(damaged.id, policy=policy)
        assert [message["content"] for message in context] == ["be kind", "words 2", "words 4", "words 5"]
        (out,) = context.report.left_out
        assert (out.sequence, out.reason, out.tokens) == (3, "unreadable", 0)
        assert any("message 3 cannot be read" in warning for warning in context.report.warnings)
        assert "message 3 cannot be read" in caplog.text
        assert not context.report.degraded
        caplog.clear()


async def test_at_the_head_it_is_no_system_message(damaged: Damaged) -> None:
    await damaged.damage(sequence=1)
    context = await damaged.erin.load_context(damaged.id, policy=WindowPolicy(max_messages=2))
    assert [message["content"] for message in context] == ["words 4", "words 5"]


async def test_a_search_finds_the_others(damaged: Damaged) -> None:
    for body in OTHER_DAMAGES[damaged.store_name]:
        await damaged.damage(body)
        found = await damaged.erin.search_history("words")
        assert [sum(f"words {number}" in text for text in found) for number in (2, 4, 5)] == [1, 1, 1], body


async def test_histories_and_messages_leave_it_out(damaged: Damaged) -> None:
    await damaged.damage()
    history = await damaged.erin.store.load(damaged.id)
    assert [document["content"] for document in history] == ["be kind", "words 2", "words 4", "words 5"]
    assert len(await damaged.erin.messages(damaged.id)) == 4
    # Going on from what was loaded keeps what cannot be read where it is.
    await damaged.erin.store.save(damaged.id, [*history, {"role": "user", "content": "more"}])
    assert [entry.unreadable is None for entry in await damaged.entries()] == [
        True,
        True,
        False,
        True,
        True,
        True,
    ]


async def test_its_id_stays_taken_and_nothing_is_stored_over_it(damaged: Damaged) -> None:
    if damaged.store_name == "file":  # the file knows ids from the messages alone
        await damaged.damage(b'{"content":"the secret word","message_id":"m3"}')
    else:
        await damaged.damage()
    before = await damaged.entries()
    again = Message(role="assistant", content="words 3", message_id="m3")
    with pytest.raises(StoreDamaged, match="m3"):
        await damaged.erin.store.append(damaged.id, [Message(role="user", content="new"), again])
    assert await damaged.entries() == before
    with pytest.raises(MessageConflict):
        await damaged.erin.store.append(damaged.id, [Message(role="user", content="x", message_id="m4")])
    await damaged.erin.store.append(damaged.id, [Message(role="user", content="new")])
    assert len(await damaged.entries()) == 6


async def test_a_copy_brings_the_rest_and_counts_it(damaged: Damaged) -> None:
    await damaged.damage()
    for _ in range(2):  # the second finds everything there
        target = InMemoryBackend()
        report = await _copy_one(damaged, target)
        assert (report.entries, report.unreadable) == (4, 1)
        there = await target.of(damaged.owner).page(damaged.id, limit=99)
        assert [entry.sequence for entry in there] == [1, 2, 4, 5]


async def _copy_one(damaged: Damaged, target: InMemoryBackend) -> transfer.CopyReport:
    file = io.BytesIO()
    report = await transfer.export(damaged.erin, file, owner=damaged.owner)
    assert report.entries == 5
    assert b'"unreadable":"' in file.getvalue()
    assert b"secret" not in file.getvalue()
    file.seek(0)
    return await transfer.import_(file, target)


async def test_what_holds_a_place_cannot_be_restored_as_a_message(damaged: Damaged) -> None:
    await damaged.damage()
    record = await damaged.erin.store.get(damaged.id)
    assert record is not None
    with pytest.raises(InvalidInput, match="holds no message"):
        await InMemoryBackend().of("erin").restore(record, await damaged.entries())


async def test_the_damage_outlives_writes_beside_it(damaged: Damaged) -> None:
    """An unreadable message stays as it is: a later release may be able to read it."""
    await damaged.damage()
    await damaged.erin.add_message(damaged.id, "user", "later")
    found: dict[int, bytes] = {}
    await edit_bodies(damaged.memory.backend, damaged.owner, damaged.id, found.update)
    assert b"the secret word" in found[3]


def counted_reads() -> float:
    return telemetry.counter("aforesaid_unreadable_messages_total").value


async def test_each_read_of_it_is_counted_and_logged(
    damaged: Damaged, caplog: pytest.LogCaptureFixture
) -> None:
    before = counted_reads()
    await damaged.entries()
    assert counted_reads() == before
    await damaged.damage()
    before = counted_reads()
    with caplog.at_level(logging.WARNING, logger="aforesaid.conversations"):
        await damaged.entries()
    assert counted_reads() > before
    found = [one for one in caplog.records if getattr(one, "event", None) == "message_unreadable"]
    assert {(one.conversation_id, one.sequence) for one in found} == {(damaged.id, 3)}  # type: ignore[attr-defined]
    assert "secret" not in caplog.text


# The others keep records as objects, or check the whole file when it is opened.
@pytest.mark.parametrize("damaged", ["sqlite", "redis", "postgres"], indirect=True)
async def test_a_damaged_record_is_no_mistake_of_the_caller(damaged: Damaged) -> None:
    await damage_record(damaged.memory.backend, damaged.owner, damaged.id)
    try:
        with pytest.raises(StoreDamaged, match=damaged.id):
            await damaged.erin.store.get(damaged.id)
    finally:
        await damaged.memory.backend.of(damaged.owner).delete(damaged.id)
