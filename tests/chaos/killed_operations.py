"""Operations that need all data, in processes that are killed in the middle of them.

    python -m tests.chaos.killed_operations [--kills 1000] [--stores sqlite,file,redis,postgres] [--seed 1]

A process stores turns, archives, restores, exports, sweeps, erases and rotates keys, and reports what it
began and what it finished. It is killed at an iteration of its event loop or at a write to a file, drawn at
random: in the middle of an operation, of a replay, or of resuming what an earlier process began. The next
process works on what is left. After each kill another process opens the store, sweeps and reads everything:
an acknowledged message is in the store or in an archive, an erasure that has begun leaves nothing, and an
export that exists is complete.
"""

import argparse
import asyncio
import itertools
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct, field

import aforesaid
from aforesaid.contracts.listing import all_records
from aforesaid.encryption import MasterKeys
from aforesaid.layers.encrypted import EncryptedBackend, rotation
from aforesaid.layers.resilient import Resilience, ResilientBackend
from aforesaid.memory.opening import Memory
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from tests.chaos.boundaries import MOMENTS, Boundaries
from tests.chaos.kills import forked
from tests.chaos.servers import SERVERS, Server

STORES = ("sqlite", "file", "redis", "postgres")
OPERATIONS = ("archive", "restore", "export", "sweep", "erase", "rotate")
STEPS = 6
"""Operations of a process that is not killed; a turn is stored beside each."""
LIVES = 25
"""Processes that work on the same data, one after the other."""
CONVERSATIONS = 4
LIFE_SECONDS = 120
"""A process that takes longer is ended with the stacks of its threads: something hangs."""
MASTER = MasterKeys(bytes(range(32)))

Tell = Callable[[str], None]


def word(number: int) -> str:
    """Return the text of a message; a raw search finds it in any file."""
    return f"word{number:07}xyzzyq"


class Model(Struct, kw_only=True):
    """The acknowledged content of one store, and what is in doubt because a process was killed."""

    live: dict[str, list[int]] = {}
    archived: dict[str, list[int]] = {}
    erased: list[int] = []
    """Messages that must not be in any file."""
    exports: dict[str, int] = {}
    """Finished exports, with their number of messages."""
    doubtful: list[tuple[str, str, int]] = []
    """Operations that began and did not end: name, key, number."""
    number: int = 0

    def begin(self, name: str, key: str, number: int) -> None:
        self.number = max(self.number, number)
        self.doubtful.append((name, key, number))

    def end(self, name: str, key: str, number: int) -> None:
        self.doubtful.remove((name, key, number))
        match name:
            case "say":
                self.live[key] += [number] * 2
            case "archive":
                self.archived[key] = self.live.pop(key)
            case "restore":
                self.live[key] = self.archived.pop(key)
            case "erase":
                self.erased += self.live.pop(key)

    # The verdict

    def settle(self, found: "Found") -> list[str]:
        """Return what is wrong; then take over what was found of operations in doubt."""
        wrong = [f"unreadable or set aside: {one}" for one in found.damaged]
        doubts = {key: name for name, key, _ in self.doubtful if name in ("archive", "restore", "erase")}
        begun = [key for name, key, _ in self.doubtful if name == "create"]
        for key in sorted({*self.live, *self.archived}):
            wrong += self._settle_one(key, doubts.get(key, ""), found)
        for key in sorted(found.live.keys() - self.live.keys() - self.archived.keys()):
            if not begun or found.live[key]:
                wrong.append(f"{key} is there: {found.live[key]}")
            self.live[key] = found.live[key]
        for key in sorted(found.archives.keys() - self.archived.keys()):
            wrong.append(f"an archive of {key} is there")
        for word_ in sorted({word(number) for number in self.erased} & found.words):
            wrong.append(f"{word_} was erased and is in {found.words_in[word_]}")
        self.doubtful.clear()
        return wrong

    def _settle_one(self, key: str, doubt: str, found: "Found") -> list[str]:
        was = self.live.get(key) or self.archived.get(key) or []
        said = [number for name, one, number in self.doubtful if (name, one) == ("say", key)]
        allowed = [was, *(was + [number] * 2 for number in said)]
        live, archive = found.live.get(key), found.archives.get(key)
        if doubt == "erase" and live is None and archive is None:
            self.erased += self.live.pop(key)
            return []
        if live is not None and (key in self.live or doubt == "restore"):
            self.archived.pop(key, None)
            self.live[key] = live
            return [] if live in allowed else [f"{key} has {live} instead of {was} (in doubt: {doubt})"]
        if live is None and (key in self.archived or doubt == "archive"):
            self.live.pop(key, None)
            self.archived[key] = was
            if archive == len(was):
                return []
        return [f"{key}: {live} in the store, {archive} in the archive, instead of {was} (in doubt: {doubt})"]


class Found(Struct, kw_only=True):
    """What a process reads after a kill."""

    live: dict[str, list[int]] = {}
    archives: dict[str, int] = {}
    damaged: list[str] = []
    words_in: dict[str, str] = {}
    """Words in raw files, and the files."""

    @property
    def words(self) -> set[str]:
        return set(self.words_in)


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that kills the process at an iteration."""

    kill_at: int | None = None
    iterations = 0

    def _run_once(self) -> None:
        if self.iterations == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.iterations += 1
        super()._run_once()  # type: ignore[misc]


class ProcessPlan(Struct, kw_only=True, frozen=True):
    """When a process is killed, and how chance decides in it."""

    seed: int
    iteration: int | None = None
    boundaries: Boundaries | None = None


class CheckedStore:
    """One store of one owner, with its model."""

    def __init__(self, kind: str, folder: Path, *, sealed: bool, server: Server | None) -> None:
        self.kind = kind
        self.folder = folder
        self.sealed = sealed
        self.owner = f"owner-{new_id()}"
        self.model = Model()
        if server is not None:
            self._url = server.url(server.port)
        else:
            self._url = {
                "sqlite": f"sqlite:///{folder}/memory.db",
                "file": f"file://{folder}/memory.json",
            }[kind]

    def _open(self) -> Memory:
        resilience = Resilience(folder=self.folder / "spool", settle_deadline=20)
        return aforesaid.open(
            self._url,
            retention=aforesaid.Retention(archives=self.folder / "archives", sweep_every=None),
            layers=aforesaid.Layers(
                resilience=resilience if self.kind in SERVERS else "off",
                encryption=MASTER if self.sealed else None,
            ),
            models=aforesaid.Models(preload=False, embedder=None),
        )

    # A process that works

    def live(self, life: ProcessPlan) -> tuple[bool, int, int]:
        """Run one process; return whether it was killed, its iterations and its boundaries."""

        def work(tell: Tell) -> None:
            signal.alarm(LIFE_SECONDS)
            boundaries = life.boundaries or Boundaries()
            boundaries.install()
            with asyncio.Runner(loop_factory=CountingLoop) as runner:
                loop = runner.get_loop()
                assert isinstance(loop, CountingLoop)
                loop.kill_at = life.iteration
                runner.run(self._work(random.Random(life.seed), tell))
                tell(json.dumps(["over", "", loop.iterations]))
                tell(json.dumps(["boundaries", "", len(boundaries.seen)]))

        lines, status = forked(work)
        counts = {"over": 0, "boundaries": 0}
        for line in lines:
            rest: list[Any]
            what, *rest = json.loads(line) if line.startswith("[") else [line]
            if what == "begin":
                self.model.begin(*rest)
            elif what == "end":
                self.model.end(*rest)
            elif what == "created":
                self.model.live[rest[0]] = []
            elif what == "exported":
                self.model.exports[rest[0]] = rest[1]
            elif what in counts:
                counts[what] = rest[1]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, (lines[-1:], status)
        return killed, counts["over"], counts["boundaries"]

    async def _work(self, source: random.Random, tell: Tell) -> None:
        async with self._open() as memory:
            worker = _Worker(memory, self, source, tell)
            for _ in range(STEPS):
                await worker.step()

    # A process that reads

    def check(self) -> list[str]:
        """Return what is wrong, as the next process sees it."""

        def work(tell: Tell) -> None:
            signal.alarm(LIFE_SECONDS)
            found, exports = asyncio.run(self._read())
            tell(json.dumps([found.live, found.archives, found.damaged, exports]))

        lines, status = forked(work)
        if status != 0:
            return [f"the next process failed: {lines[-1:]}, status {status}"]
        live, archives, damaged, exports = json.loads(lines[-1])
        found = Found(live=live, archives=archives, damaged=damaged, words_in=self._words())
        return [*exports, *self.model.settle(found)]

    async def _read(self) -> tuple[Found, list[str]]:
        found = Found()
        async with self._open() as memory:
            layer = memory.layer(ResilientBackend)
            if layer is not None:
                assert await layer.recover()
                found.damaged += ["a dead letter"] * (await layer.health()).dead_letters
            await memory.sweep()
            manager = memory.of(self.owner)
            store = await manager.store.authoritative()
            async for record in all_records(store):
                entries = await store.page(record.id, limit=10**6)
                found.damaged += [f"{record.id}: {entry.unreadable}" for entry in entries if entry.unreadable]
                found.live[record.id] = [_number(entry.message) for entry in entries if not entry.unreadable]
            found.archives |= {one.conversation_id: one.messages for one in await manager.archives()}
        return found, [one async for one in self._wrong_exports()]

    async def _wrong_exports(self) -> AsyncIterator[str]:
        """Import every export that looks complete, and compare its messages."""
        doubtful = {key: number for name, key, number in self.model.doubtful if name == "export"}
        folder = self.folder / "exports"
        for path in sorted(folder.iterdir()) if folder.exists() else ():
            wanted = self.model.exports.get(path.name, doubtful.get(path.name))
            if wanted is None:
                continue  # unfinished files beside it; `export` never gave them this name
            messages = await self._imported(path)
            beside = 2 if path.name in doubtful else 0  # the turn that was stored beside it
            if not wanted <= messages <= wanted + beside:
                yield f"export {path.name} has {messages} messages instead of {wanted}"
        for name in self.model.exports:
            if not (folder / name).exists():
                yield f"export {name} is missing"

    async def _imported(self, export: Path) -> int:
        """Import an export somewhere else; return the number of its messages."""
        with tempfile.TemporaryDirectory(prefix="aforesaid-imported-") as folder:
            async with aforesaid.open(
                "memory://",
                retention=aforesaid.Retention(archives=Path(folder), sweep_every=None),
                layers=aforesaid.Layers(encryption=MASTER if self.sealed else None),
                models=aforesaid.Models(preload=False, embedder=None),
            ) as target:
                await target.of(self.owner).import_(export)
                return (await target.backend.of(self.owner).tally()).messages

    def _words(self) -> dict[str, str]:
        """Return the words of erased messages that are in files, where the store has files of its own."""
        if self.kind in SERVERS:
            return {}
        erased = [word(number).encode() for number in set(self.model.erased)]
        found: dict[str, str] = {}
        for path in self.folder.rglob("*"):
            if path.is_file() and "exports" not in path.parts:
                content = path.read_bytes()
                found |= {one.decode(): path.name for one in erased if one in content}
        return found

    def forget_exports(self) -> None:
        """Remove the exports: they are copies that the user has asked for."""
        shutil.rmtree(self.folder / "exports", ignore_errors=True)
        self.model.exports.clear()


def _number(message: Message) -> int:
    return int(str(message.content)[4:11])


class _Worker:
    """Works on a memory and reports it; its model is a copy of the parent's, in a fork."""

    def __init__(self, memory: Memory, checked: CheckedStore, source: random.Random, tell: Tell) -> None:
        self._memory = memory
        self._manager = memory.of(checked.owner)
        self._folder = checked.folder
        self._model = checked.model
        self._model.doubtful.clear()
        self._source = source
        self._tell = tell

    async def step(self) -> None:
        if len(self._model.live) < CONVERSATIONS:
            await self._create()
        operation = self._source.choice(OPERATIONS)
        key = self._source.choice(sorted(self._model.live))
        others = sorted(self._model.live.keys() - {key})
        # A rotation without a grace period retires the key of a turn that is being stored: that is what the
        # period is for.
        alone = not others or operation == "rotate"
        beside = asyncio.sleep(0) if alone else self._say(self._source.choice(others))
        await asyncio.gather(getattr(self, f"_{operation}")(key), beside)

    async def _create(self) -> None:
        await self._reported("create", new_id(), self._created)
        await self._say(list(self._model.live)[-1])

    async def _created(self, session: str, _: int) -> None:
        record = await self._manager.get_or_create_conversation(session)
        self._model.live[record.id] = []
        self._tell(json.dumps(["created", record.id]))

    async def _say(self, key: str) -> None:
        async def said(key: str, number: int) -> None:
            text = word(number)
            await self._manager.append(
                key, [Message(role="user", content=text), Message(role="assistant", content=text)]
            )

        await self._reported("say", key, said)

    async def _archive(self, key: str) -> None:
        await self._reported("archive", key, lambda key, _: self._manager.archive(key))

    async def _restore(self, _: str) -> None:
        if self._model.archived:
            key = self._source.choice(sorted(self._model.archived))
            await self._reported("restore", key, lambda key, _: self._manager.restore(key))

    async def _erase(self, key: str) -> None:
        await self._reported("erase", key, lambda key, _: self._manager.erase(key))

    async def _sweep(self, key: str) -> None:
        await self._reported("sweep", key, lambda _, __: self._memory.sweep())

    async def _rotate(self, key: str) -> None:
        if (backend := self._memory.layer(EncryptedBackend)) is not None:
            rotate = rotation.rotate(backend, deep=True, grace=timedelta(0))
            await self._reported("rotate", key, lambda _, __: rotate)

    async def _export(self, _: str) -> None:
        name = new_id()
        live = sum(len(said) for said in self._model.live.values())
        self._tell(json.dumps(["begin", "export", name, live]))
        manifest = await self._manager.export(self._folder / "exports" / name)
        self._tell(json.dumps(["exported", name, manifest.counts["messages"]]))
        self._tell(json.dumps(["end", "export", name, live]))

    async def _reported(self, name: str, key: str, doing: Callable[[str, int], Awaitable[object]]) -> None:
        number = self._model.number + 1
        self._model.begin(name, key, number)
        self._tell(json.dumps(["begin", name, key, number]))
        await doing(key, number)
        self._model.end(name, key, number)
        self._tell(json.dumps(["end", name, key, number]))


class Figures(Struct, kw_only=True):
    """What a run did and found."""

    kills: Counter[str] = field(default_factory=Counter)
    during: Counter[str] = field(default_factory=Counter)
    """Operations that were cut short."""
    messages: int = 0
    erased: int = 0
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"kills {dict(self.kills)}, during {dict(sorted(self.during.items()))}; "
            f"acknowledged messages {self.messages:,}, erased {self.erased:,}; "
            f"wrong {len(self.wrong)} {self.wrong[:5]}"
        )


def run(
    kind: str, folder: Path, kills: int, source: random.Random, server: Server | None = None
) -> Iterator[Figures]:
    """Kill so many processes on stores of this kind; yield the figures after each."""
    figures = Figures()
    for number in itertools.count():
        place = folder / f"{kind}-{number}"
        place.mkdir()
        checked = CheckedStore(kind, place, sealed=number % 2 == 1, server=server)
        iterations, boundaries = 0, 0
        for _ in range(LIVES):
            life = _life(source, iterations, boundaries, in_files=server is None)
            killed, *seen = checked.live(life)
            if not killed:
                iterations, boundaries = max(iterations, seen[0]), max(boundaries, seen[1])
            figures.kills[kind] += killed
            figures.during.update(name for name, _, _ in checked.model.doubtful)
            wrong = checked.check()
            figures.wrong += [f"{kind} {place.name} {life.seed} {life.iteration}: {one}" for one in wrong]
            checked.forget_exports()
            if wrong:
                shutil.copytree(place, folder.parent / f"{folder.name}-{place.name}", symlinks=True)
                break  # the model does not fit any more
            yield figures
            if figures.kills[kind] >= kills:
                break
        figures.messages += 2 * checked.model.number
        figures.erased += len(checked.model.erased)
        if figures.kills[kind] >= kills or figures.wrong:
            yield figures
            return
        shutil.rmtree(place)


def _life(source: random.Random, iterations: int, boundaries: int, *, in_files: bool) -> ProcessPlan:
    seed = source.randrange(2**32)
    if not iterations:
        return ProcessPlan(seed=seed)  # the first one is not killed: it says how long a life is
    if in_files and source.random() < 0.5:
        at = Boundaries(kill_at=source.randrange(boundaries), moment=source.choice(MOMENTS))
        return ProcessPlan(seed=seed, boundaries=at)
    return ProcessPlan(seed=seed, iteration=source.randrange(iterations))


@contextmanager
def _server(kind: str) -> Iterator[Server | None]:
    """Start the server of this kind; yield None for a store without one."""
    if kind not in SERVERS:
        yield None
        return
    server = SERVERS[kind]()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="for all stores together")
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    stores = given.stores.split(",")
    clean = True
    for kind in stores:
        with tempfile.TemporaryDirectory(prefix="aforesaid-killed-") as folder, _server(kind) as server:
            source = random.Random(f"{given.seed} {kind}")
            for figures in run(kind, Path(folder), given.kills // len(stores), source, server):
                if sum(figures.kills.values()) % 50 == 0:
                    print(f"{kind}: {sum(figures.kills.values())} kills", flush=True)
        print(f"{kind}, seed {given.seed}: {figures}", flush=True)
        clean &= not figures.wrong
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
