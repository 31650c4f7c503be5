"""Operations that need all data, under outages, restarts and replays of real servers.

    python -m tests.chaos.whole_data [--rounds 1000] [--stores postgres,redis] [--seed 1]

Each round stores turns, takes the server away, stores more turns into the spool, brings the server back and
at once runs an operation while the backlog is replayed: archive, restore, export, sweep, erase, key rotation
or a listing. In some rounds the server goes away again during the operation, or the client dies first and a
new one adopts its spool. The operation must be complete or refused. After each round every acknowledged
message must be in the store or in an archive, and nothing else.
"""

import argparse
import asyncio
import faulthandler
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

import aforesaid
from aforesaid.encryption import MasterKeys
from aforesaid.errors import RevisionConflict, StoreUnavailable
from aforesaid.layers.encrypted import EncryptedBackend, rotation
from aforesaid.layers.resilient import Resilience, ResilientBackend
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.chaos.outages import until_well
from tests.chaos.proxy import Mode, Proxy
from tests.chaos.servers import SERVERS, Server

OWNERS = ("ann", "bob")
MODES: tuple[Mode, ...] = ("reset", "refuse", "drop", "truncate")
CUTS: tuple[Mode, ...] = ("reset", "refuse", "truncate")
"""What happens during an operation: not "drop", after which a long read waits a minute for its deadline."""
KILL_EVERY = 25
"""In one of so many outages the server itself is killed and started again."""
MOST_CONVERSATIONS = 6
ROUND_SECONDS = 300
"""A round that takes longer ends the run with the stacks of all threads: something hangs."""
PROGRESS_EVERY = 50
PATIENCE = 5
"""So often may the store refuse after the server is back."""
MASTER = MasterKeys(bytes(range(32)))


class Figures(Struct, kw_only=True):
    """What a run did and found."""

    done: Counter[str]
    refused: Counter[str]
    acknowledged: int = 0
    adopted: int = 0
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"done {dict(sorted(self.done.items()))}, refused {dict(sorted(self.refused.items()))}; "
            f"acknowledged messages {self.acknowledged:,}; spools adopted {self.adopted}; "
            f"wrong {len(self.wrong)} {self.wrong[:5]}"
        )


class Run:
    """A memory, and what must be in it: for each owner and conversation, the acknowledged contents."""

    def __init__(self, server: Server, folder: Path, source: random.Random) -> None:
        self._server = server
        self._folder = folder
        self._source = source
        self._proxy = Proxy(server.port)
        self._number = 0
        self.live: dict[tuple[str, str], list[int]] = {}
        self.archived: dict[tuple[str, str], list[int]] = {}
        self.figures = Figures(done=Counter(), refused=Counter())

    async def open(self) -> None:
        self.memory = await aforesaid.open(
            self._server.url(self._proxy.port),
            retention=aforesaid.Retention(archives=self._folder / "archives", sweep_every=None),
            layers=aforesaid.Layers(
                resilience=Resilience(
                    folder=self._folder / "spool", read_deadline=0.4, write_deadline=0.6, settle_deadline=20
                ),
                encryption=MASTER,
            ),
            models=aforesaid.Models(preload=False, embedder=None),
        )

    @property
    def _layer(self) -> ResilientBackend:
        layer = self.memory.layer(ResilientBackend)
        assert layer is not None
        return layer

    async def rounds(self, number: int, *, begins: Callable[[int], None] = lambda number: None) -> Figures:
        """Play the rounds; `begins` is called with the number of each round before it."""
        await self._proxy.start()
        await self.open()
        for owner in OWNERS:
            await self._begin(owner)
        for at in range(number):
            begins(at)
            await self._round()
        await self.memory.close()
        await self._proxy.stop()
        return self.figures

    async def _round(self) -> None:
        source = self._source
        for owner in OWNERS:
            if sum(one == owner for one, _ in self.live) < MOST_CONVERSATIONS:
                await self._begin(owner)
        await self._speak(source.randrange(4))
        await self._out(lambda: self._speak(source.randrange(1, 8)))
        if source.random() < 0.2:
            await self._die()
        again = source.random() < 0.4
        await asyncio.gather(self._operate(), self._out_again() if again else asyncio.sleep(0))
        await self._patiently(self.memory.sweep)
        await self._patiently(self._check)

    async def _patiently(self, action: Callable[[], Awaitable[object]]) -> None:
        """Run an action after the outage. A starved machine may miss a deadline: then the action is refused,
        which must change nothing, so it is tried again."""
        for _ in range(PATIENCE):
            await until_well(self._layer)
            try:
                await action()
            except StoreUnavailable as error:
                self.figures.refused["afterwards"] += 1
                print(f"refused after the outage: {error}", flush=True)
            else:
                return
        self.figures.wrong.append(f"refused {PATIENCE} times although the server is back")

    # What happens

    async def _begin(self, owner: str) -> None:
        conversation = await self.memory.of(owner).get_or_create_conversation(new_id())
        self.live[owner, conversation.id] = []
        await self._say(owner, conversation.id)

    async def _speak(self, turns: int) -> None:
        for _ in range(turns):
            await self._say(*self._source.choice(sorted(self.live)))

    async def _say(self, owner: str, conversation_id: str) -> None:
        self._number += 1
        turn = [Message(role="user", content=self._number), Message(role="assistant", content=self._number)]
        await self.memory.of(owner).append(conversation_id, turn)
        self.live[owner, conversation_id] += [self._number] * 2
        self.figures.acknowledged += 2

    async def _out(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        if self._source.randrange(KILL_EVERY) == 0:
            await asyncio.to_thread(self._server.kill)
            await meanwhile()
            await asyncio.to_thread(self._server.restart)
            return
        self._proxy.become(self._source.choice(MODES))
        await meanwhile()
        self._proxy.become("pass")

    async def _out_again(self) -> None:
        await asyncio.sleep(self._source.uniform(0, 0.8))
        self._proxy.become(self._source.choice(CUTS))
        await asyncio.sleep(self._source.uniform(0, 0.4))
        self._proxy.become("pass")

    async def _die(self) -> None:
        """The client ends without storing its backlog; a new one adopts the spool."""
        self.figures.adopted += bool(self._layer.queues)
        self._layer.breaker.trip("the process dies")
        await self.memory.close()
        await self.open()

    # The operations

    async def _operate(self) -> None:
        name = self._source.choice(sorted(OPERATIONS))
        with suppress(StoreUnavailable):  # the store may be away still; then nothing was tried
            await _probed(self._layer)
        try:
            await OPERATIONS[name](self)
        except (StoreUnavailable, RevisionConflict):
            self.figures.refused[name] += 1
        else:
            self.figures.done[name] += 1

    def _expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            finding = f"{what}: {found} instead of {wanted}"
            print(finding, flush=True)
            self.figures.wrong.append(finding)

    async def archive(self) -> None:
        owner, conversation_id = key = self._source.choice(sorted(self.live))
        try:
            made = await self.memory.of(owner).archive(conversation_id)
        except StoreUnavailable:
            await self._settle_archive(key)
            raise
        self._expect("archive", made.messages, len(self.live[key]))
        self.archived[key] = self.live.pop(key)

    async def _settle_archive(self, key: tuple[str, str]) -> None:
        """A lost answer leaves it open whether the conversation has left the store; both are in order."""
        await until_well(self._layer)
        owner, conversation_id = key
        if await (await self.memory.of(owner).store.authoritative()).get(conversation_id) is None:
            self.archived[key] = self.live.pop(key)

    async def restore(self) -> None:
        if not self.archived:
            return
        owner, conversation_id = key = self._source.choice(sorted(self.archived))
        try:
            await self.memory.of(owner).restore(conversation_id)
        except StoreUnavailable:
            await until_well(self._layer)
            await self.memory.of(owner).restore(conversation_id)
        self.live[key] = self.archived.pop(key)

    async def export(self) -> None:
        owner = self._source.choice(OWNERS)
        manifest = await self.memory.of(owner).export(self._folder / "exports" / new_id())
        messages = sum(len(said) for (one, _), said in self.live.items() if one == owner)
        archives = sum(one == owner for one, _ in self.archived)
        self._expect(
            "export", (manifest.counts["messages"], manifest.counts["archives"]), (messages, archives)
        )

    async def sweep(self) -> None:
        self._expect("sweep", await self.memory.sweep(), 0)

    async def erase(self) -> None:
        owner, conversation_id = key = self._source.choice(sorted(self.live))
        try:
            receipt = await self.memory.of(owner).erase(conversation_id)
        except StoreUnavailable as error:
            if "has begun" in str(error):
                del self.live[key]  # the sweep at the end of the round completes it
            else:
                await self._settle_erasure(key)
            raise
        self._expect("erase", receipt.erased["messages"], len(self.live.pop(key)))

    async def _settle_erasure(self, key: tuple[str, str]) -> None:
        """When the answer of the note was lost, the erasure may be noted: the sweep decides."""
        await until_well(self._layer)
        if await self.memory.resume_erasures():
            del self.live[key]

    async def rotate(self) -> None:
        sealed = self.memory.layer(EncryptedBackend)
        assert sealed is not None
        await rotation.rotate(sealed, deep=True, grace=timedelta(0))

    async def count(self) -> None:
        owners = {owner async for owner in self.memory.owners()}
        self._expect("owners", owners, set(OWNERS))
        found = Counter([owner for owner, _ in await self.memory.would_purge(timedelta(days=90))])
        self._expect("would_purge", found, Counter(owner for owner, _ in self.live))

    # The verdict

    async def _check(self) -> None:
        for (owner, conversation_id), said in self.live.items():
            store = await self.memory.of(owner).store.authoritative()
            found = [_content(entry) for entry in await store.page(conversation_id, limit=10**6)]
            self._expect(f"conversation {conversation_id}", found, said)
        for owner in OWNERS:
            found_archives = {
                one.conversation_id: one.messages for one in await self.memory.of(owner).archives()
            }
            wanted = {key[1]: len(said) for key, said in self.archived.items() if key[0] == owner}
            self._expect("archives", {one: found_archives.get(one) for one in wanted}, wanted)
        self._expect("dead letters", (await self._layer.health()).dead_letters, 0)


def _content(entry: Any) -> object:
    return entry.unreadable or entry.message.content


async def _probed(layer: ResilientBackend) -> None:
    """Wait until the store is asked again, but not for the backlog."""
    async with asyncio.timeout(60):
        while not layer.reachable:  # noqa: ASYNC110  the layer has no event for its recovery
            await asyncio.sleep(0.005)


OPERATIONS: dict[str, Callable[[Run], Awaitable[None]]] = {
    "archive": Run.archive,
    "restore": Run.restore,
    "export": Run.export,
    "sweep": Run.sweep,
    "erase": Run.erase,
    "rotate": Run.rotate,
    "count": Run.count,
}


def _watch_round(number: int) -> None:
    """Bound the round in time, also when the event loop is blocked, and show progress now and then."""
    faulthandler.dump_traceback_later(ROUND_SECONDS, exit=True)
    if number and number % PROGRESS_EVERY == 0:
        print(f"{number} rounds", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--stores", default="postgres,redis")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    clean = True
    for name in given.stores.split(","):
        server = SERVERS[name]()
        with tempfile.TemporaryDirectory(prefix="aforesaid-whole-") as folder:
            server.start()
            try:
                run = Run(server, Path(folder), random.Random(given.seed))
                figures = asyncio.run(run.rounds(given.rounds, begins=_watch_round))
            finally:
                faulthandler.cancel_dump_traceback_later()
                server.stop()
        print(f"{name}, seed {given.seed}, {given.rounds} rounds: {figures}", flush=True)
        clean &= not figures.wrong
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
