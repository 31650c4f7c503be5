"""Random histories of branches, played on a memory and on a model that copies.

The model copies all messages at a fork and knows nothing of lineages. After every step each conversation must
read the same in both: its length, its last messages, its pages and single messages.
"""

import asyncio
import random
import re
from datetime import timedelta
from itertools import count
from typing import NamedTuple

import aforesaid
from aforesaid.contracts import Entry
from aforesaid.errors import ConversationNotFound, MergeConflict
from aforesaid.layers.branched import stored_itself
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.contexts import Context
from aforesaid.model.conversations import Query
from aforesaid.model.messages import Message
from aforesaid.testing.contract.base import FixedClock
from aforesaid.windows import WindowPolicy

STEPS = 40
# Smaller than most logs, so that summaries are needed.
WINDOW = WindowPolicy(max_messages=4)
REDACTED = "gone"
NAMES = [
    *["append", "fork"] * 3,
    *["merge", "summarize"] * 2,
    *["redact", "delete", "rewrite", "expire", "erase", "begin"],
]


class Said(NamedTuple):
    """A message of the model: its time, its order of arrival, its id and its words."""

    at: float
    number: int
    id: str
    role: str
    words: str
    serial: int
    """The same in all copies that forks make; a merge stores another message."""


class Model:
    """Conversations as lists of messages, and the family of each."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Said]] = {}
        self.family: dict[str, str] = {}
        self.ends: dict[str, float | None] = {}
        self.ttl: dict[str, float | None] = {}

    def expire(self, now: float) -> None:
        for one in [one for one, end in self.ends.items() if end is not None and end <= now]:
            self.remove(one)

    def remove(self, one: str) -> None:
        for values in (self.logs, self.family, self.ends, self.ttl):
            values.pop(one, None)

    def touch(self, one: str, now: float) -> None:
        ttl = self.ttl[one]
        self.ends[one] = None if ttl is None else now + ttl


class History:
    """One random history. `reopen` returns the memory again after a restart."""

    def __init__(self, seed: int, memory: aforesaid.Memory, clock: FixedClock) -> None:
        self.chance = random.Random(seed)
        self.memory = memory
        self.clock = clock
        self.model = Model()
        self.owner = f"owner {seed} {self.chance.random()}"
        self.number = 0
        self.serials = count()
        self.erased: list[str] = []

    @property
    def manager(self) -> ConversationManager:
        return self.memory.of(self.owner)

    @property
    def now(self) -> float:
        return self.clock().timestamp()

    async def step(self) -> str:
        """Play one random step, and compare everything."""
        self.clock.advance(timedelta(seconds=1))
        self.model.expire(self.now)
        if not self.model.logs:
            await self.begin()
        name = self.chance.choice(NAMES)
        one = self.chance.choice(list(self.model.logs))
        await getattr(self, name)(one) if name != "begin" else await self.begin()
        self.model.expire(self.now)
        await self.compare(name)
        return name

    async def begin(self) -> None:
        ttl = self.chance.choice([None, timedelta(hours=2), timedelta(hours=9)])
        record = await self.manager.get_or_create_conversation(f"session {self.number}", channel="text")
        self.number += 1
        await self.manager.update_metadata(record.id, **({"clear": ["ttl"]} if ttl is None else {"ttl": ttl}))
        self.model.logs[record.id] = []
        self.model.family[record.id] = record.id
        self.model.ttl[record.id] = None if ttl is None else ttl.total_seconds()
        self.model.touch(record.id, self.now)

    async def append(self, one: str) -> None:
        late = self.chance.random() < 0.15
        at = self.clock() - timedelta(seconds=self.chance.choice([5, 20, 3000])) if late else None
        turn = []
        for role in ("user", "assistant"):
            self.number += 1
            said = Message(
                role=role,
                content=f"words{self.number}x",
                message_id=f"m{self.number}",
                timestamp=at,
            )
            turn.append(said)
        stored = await self.manager.append(one, turn)
        for entry in stored.new:
            self.model.logs[one].append(_said(entry, next(self.serials)))
        self.model.touch(one, self.now)

    async def fork(self, one: str) -> None:
        log = sorted(self.model.logs[one])
        if log and self.chance.random() < 0.7:
            place = self.chance.randrange(len(log))
            at, shared = log[place].id, log[: place + (log[place].role != "user")]
        else:
            at, shared = None, log
        branch = await self.manager.fork(one, at=at)
        if at is None:
            before, after = [await self._context(each) for each in (one, branch.id)]
            assert [each.to_dict() for each in before.messages] == [each.to_dict() for each in after.messages]
            assert before.report.tokens == after.report.tokens
        self.model.logs[branch.id] = list(shared)
        self.model.family[branch.id] = self.model.family[one]
        self.model.ttl[branch.id] = self.model.ttl[one]
        self.model.touch(branch.id, self.now)

    async def _context(self, one: str) -> Context:
        return await self.manager.load_context(one, policy=WINDOW)

    async def summarize(self, one: str) -> None:
        """Summarize what the window leaves out. The summary quotes, so it shows whose words it has."""
        summary = await self.manager.summarize(one, policy=WINDOW)
        said = {said.words for said in self.model.logs[one]}
        assert summary is None or set(re.findall(r"words\d+x", summary.text)) <= said

    async def redact(self, one: str) -> None:
        if not self.model.logs[one]:
            return
        said = self.chance.choice(self.model.logs[one])
        await self.manager.redact(one, said.id, mark=REDACTED)
        # A message that a merge has copied into another log stays there.
        for log in self._holders(one, said):
            log[:] = [each._replace(words=REDACTED) if each.serial == said.serial else each for each in log]

    def _holders(self, one: str, said: Said) -> list[list[Said]]:
        family = self.model.family[one]
        logs = [log for each, log in self.model.logs.items() if self.model.family[each] == family]
        return [log for log in logs if any(each.serial == said.serial for each in log)]

    async def merge(self, one: str) -> None:
        others = [each for each in self.model.logs if self.model.family[each] == self.model.family[one]]
        other = self.chance.choice(others)
        how = self.chance.choice(["append", "adopt"])
        here, there = sorted(self.model.logs[one]), sorted(self.model.logs[other])
        known = {said.id for said in here}
        new = [said for said in there if said.id not in known and said.words != REDACTED]
        ahead = [said for said in here if said.id not in {each.id for each in there}]
        try:
            merged = await self.manager.merge(one, other, how=how)  # type: ignore[arg-type]
        except MergeConflict:
            assert how == "adopt"
            assert new
            assert ahead
            return
        assert not (how == "adopt" and new and ahead)
        assert merged.added == len(new), (merged.added, new)
        for said in new:
            entry = await self.manager.store.entry(one, said.id)
            assert entry is not None
            self.model.logs[one].append(_said(entry, next(self.serials)))
        if new:
            self.model.touch(one, self.now)

    async def delete(self, one: str) -> None:
        await self.manager.delete_conversation(one)
        self.model.remove(one)

    async def rewrite(self, one: str) -> None:
        self.number += 1
        message = Message(role="user", content=f"words{self.number}x", message_id=f"m{self.number}")
        await self.manager.rewrite_history(one, [message])
        entry = await self.manager.store.entry(one, f"m{self.number}")
        assert entry is not None
        self.model.logs[one] = [_said(entry, next(self.serials))]
        self.model.touch(one, self.now)

    async def expire(self, _: str) -> None:
        self.clock.advance(timedelta(hours=self.chance.choice([1, 3])))
        if self.chance.random() < 0.6:
            await self.memory.purge_expired()

    async def erase(self, one: str) -> None:
        if self.chance.random() < 0.7:
            return  # rare: it ends a whole family
        words, family = {said.serial for said in self.model.logs[one]}, self.model.family[one]
        receipt = await self.manager.erase(one)
        assert not receipt.remains
        left = {record.id for record in (await self.manager.store.find(Query(limit=1000))).conversations}
        for each in set(self.model.logs) - left:
            assert self.model.family[each] == family
            self.erased += [said.words for said in self.model.logs[each] if said.words != REDACTED]
            self.model.remove(each)
        for log in self.model.logs.values():
            assert not words & {said.serial for said in log}

    async def compare(self, step: str) -> None:
        """Compare all conversations at once: a server then answers several reads in one round trip."""
        await asyncio.gather(*(self._compare(step, one, log) for one, log in self.model.logs.items()))
        listed = {record.id for record in (await self.manager.store.find(Query(limit=1000))).conversations}
        assert listed == set(self.model.logs), step

    async def _compare(self, step: str, one: str, log: list[Said]) -> None:
        store = self.manager.store
        expected = [(said.id, said.words) for said in sorted(log)]
        limit, offset = self.chance.randint(1, 6), self.chance.randint(0, len(expected))
        record = await store.get(one)
        assert record is not None, (step, one)
        entries = await store.page(one, limit=1000)
        found = [(entry.message.message_id, entry.message.content) for entry in entries]
        assert found == expected, (step, one, record.lineage, found, expected)
        assert record.message_count == len(expected), (step, record, expected)
        assert [entry.conversation_id for entry in entries] == [one] * len(entries)
        tail = await store.tail(one, limit=limit)
        assert [entry.message.message_id for entry in tail] == [each[0] for each in expected[-limit:]]
        if tail and len(expected) > limit:
            before = await store.tail(one, limit=2, before=tail[0].position)
            wanted = [each[0] for each in expected[-limit - 2 : -limit]]
            assert [entry.message.message_id for entry in before] == wanted
        page = await store.page(one, limit=3, offset=offset)
        assert [entry.message.message_id for entry in page] == [e[0] for e in expected[offset : offset + 3]]

    async def check_erased(self) -> None:
        """No erased word is stored, except those that a merge had copied to another family."""
        copied = {said.words for log in self.model.logs.values() for said in log}
        assert not (set(self.erased) - copied) & await self.stored_words()

    async def stored_words(self) -> set[str]:
        """Return the words of all messages that the store has, however they are reached."""
        raw = stored_itself(self.manager.store)
        found: set[str] = set()
        for record in (await raw.find(Query(limit=1000))).conversations:
            try:
                found |= {str(e.message.content) for e in await raw.page(record.id, limit=1000)}
            except ConversationNotFound:
                continue
        return found


def _said(entry: Entry, number: int) -> Said:
    micros, sequence = entry.position
    message = entry.message
    return Said(micros, sequence, str(message.message_id), message.role, str(message.content), number)
