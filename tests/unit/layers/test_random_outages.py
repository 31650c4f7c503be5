"""Random operations over a store that fails at random: the acknowledged is there, once, whole, in order."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from aforesaid.errors import StoreUnavailable
from aforesaid.model.conversations import Changes, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.examples import examples
from tests.faults import Fault
from tests.unit.layers.conftest import LayerSetup

CONVERSATIONS = 3
OWNERS = ("ann", "bob")


def faults(seed: int) -> Iterator[Fault]:
    """Spells of good and bad weather, drawn from the seed."""
    source = random.Random(seed)
    while True:
        fault: Fault = source.choice(("before", "after", None, None))
        for _ in range(source.randint(1, 12)):
            yield fault


class Run:
    """One life of several processes with one store between them, and what they acknowledged."""

    def __init__(self, setup: LayerSetup) -> None:
        self.setup = setup
        self.acknowledged: dict[tuple[str, str], list[int]] = {}
        self.sent = 0

    async def start(self) -> None:
        for owner in OWNERS:
            store = self.setup.layer.of(owner)
            for number in range(CONVERSATIONS):
                fresh = started(new_id(), now=store.now(), ttl=None)
                record = await store.resume(f"session {number}", fresh)
                self.acknowledged[owner, record.id] = []

    async def turn(self, owner: str, which: int) -> None:
        conversation_id = [key[1] for key in self.acknowledged if key[0] == owner][which]
        self.sent += 1
        number = self.sent
        messages = [Message(role="user", content=number), Message(role="assistant", content=number)]
        try:
            await self.setup.layer.of(owner).append(conversation_id, messages)
        except StoreUnavailable:
            return
        self.acknowledged[owner, conversation_id].append(number)

    async def change(self, owner: str, which: int) -> None:
        conversation_id = [key[1] for key in self.acknowledged if key[0] == owner][which]
        self.sent += 1
        try:
            await self.setup.layer.of(owner).update(conversation_id, Changes(subject=str(self.sent)))
        except StoreUnavailable:
            return

    async def recover(self) -> None:
        self.setup.seconds.now += 60
        try:
            await self.setup.layer.recover()
        except StoreUnavailable:
            return

    async def restart(self) -> None:
        """The process ends with what it has in the spool, and another one begins."""
        layer = self.setup.layer
        layer.breaker.trip("no handing over at the end")
        await layer.close()
        self.setup.layer = self.setup.make()
        await self.setup.layer.open()

    async def check(self) -> None:
        self.setup.failing.up()
        self.setup.seconds.now += 60
        assert await self.setup.layer.recover()
        for (owner, conversation_id), numbers in self.acknowledged.items():
            entries = await self.setup.memory.of(owner).page(conversation_id, limit=9999)
            stored = [entry.message.content for entry in entries]
            assert stored[::2] == stored[1::2], "whole"
            assert len(set(stored[::2])) == len(stored) // 2, "once"
            assert stored[::2] == sorted(stored[::2]), "in order"
            assert set(numbers) <= set(stored), "present"
        assert not list(self.setup.folder.glob("*.spool"))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.sampled_from(OWNERS), st.integers(0, CONVERSATIONS - 1)),
        st.tuples(st.just("turn"), st.sampled_from(OWNERS), st.integers(0, CONVERSATIONS - 1)),
        st.tuples(st.just("change"), st.sampled_from(OWNERS), st.integers(0, CONVERSATIONS - 1)),
        st.tuples(st.just("recover")),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@examples(100)
@given(steps, st.integers(0, 2**32))
def test_nothing_acknowledged_is_lost_doubled_torn_or_reordered(
    steps: list[tuple[str, ...]], seed: int
) -> None:
    async def play(folder: Path) -> None:
        setup = LayerSetup(folder)
        await setup.layer.open()
        run = Run(setup)
        await run.start()
        weather = faults(seed)
        setup.failing.plan = lambda name: next(weather)
        for name, *arguments in steps:
            await getattr(run, name)(*arguments)
        await run.check()
        await setup.layer.close()

    with TemporaryDirectory(prefix="aforesaid-outages-") as folder:
        asyncio.run(play(Path(folder) / "spool"))


@examples(40)
@given(st.integers(0, 2**32))
def test_the_same_with_many_callers_at_once(seed: int) -> None:
    async def play(folder: Path) -> None:
        setup = LayerSetup(folder)
        await setup.layer.open()
        run = Run(setup)
        await run.start()
        weather = faults(seed)
        setup.failing.plan = lambda name: next(weather)

        async def caller(owner: str, which: int) -> None:
            for _ in range(12):
                await run.turn(owner, which)
                await asyncio.sleep(0)

        async def keeper() -> None:
            for _ in range(12):
                await run.recover()
                await asyncio.sleep(0)

        callers = (caller(owner, which) for owner in OWNERS for which in range(CONVERSATIONS))
        await asyncio.gather(keeper(), *callers)
        await run.check()
        await setup.layer.close()

    with TemporaryDirectory(prefix="aforesaid-outages-") as folder:
        asyncio.run(play(Path(folder) / "spool"))
