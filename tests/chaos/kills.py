"""Random kills: processes that store turns die at a write boundary, again and again, and nothing is lost.

    python -m tests.chaos.kills [--kills 1000] [--seed 1]

Each process is a fork of this one, so that a kill costs little. It dies at a boundary of `boundaries`,
chosen at random, or at all of them one after the other (`--every`). Another fork then opens what is
left, as the next process would, and reads everything. Prints the figures; exit 1 when they are not
clean.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aforesaid.contracts import Backend
from aforesaid.layers.resilient import ResilientBackend, resilient
from aforesaid.model.conversations import started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.json_file import JsonFileBackend
from aforesaid.stores.sqlite import SQLiteBackend
from aforesaid.telemetry import Telemetry
from tests.chaos.boundaries import MOMENTS, Boundaries, Moment
from tests.chaos.checking import Verdict, judge
from tests.faults import Failing

KINDS = ("sqlite", "file", "spool", "replay")
"""What is killed: a store while it writes; the spool while it takes turns in; the spool while it is handed
over to a store."""
CONVERSATIONS = 3
TURNS = 12
"""Turns in each conversation, for a process that is not killed."""
LIVES = 12
"""Processes that work on the same files, one after the other."""


def backend_of(kind: str, folder: Path, *, away: bool = False) -> Backend:
    if kind == "file":
        return JsonFileBackend(folder / "memory.json")
    store = SQLiteBackend(str(folder / "memory.db"))
    if kind == "sqlite":
        return store
    failing = Failing(store)

    def plan(name: str) -> Any:
        return None if name in ("open", "get") or not away else "before"

    failing.plan = plan
    return resilient(failing, folder=folder / "spool", metrics=Telemetry(), background=False, sleep=_no_sleep)


async def _no_sleep(_: float) -> None:
    """Pauses between attempts, without the pauses."""


class Files:
    """One set of files, and what was acknowledged about it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.conversations = [new_id() for _ in range(CONVERSATIONS)]
        self.acknowledged: dict[str, set[int]] = {one: set() for one in self.conversations}
        self.begun: dict[str, int] = dict.fromkeys(self.conversations, 0)

    def prepare(self) -> None:
        report, status = forked(lambda tell: asyncio.run(self._create()))
        assert status == 0, report

    async def _create(self) -> None:
        backend = backend_of(self.kind, self.folder)
        await backend.open()
        store = backend.of("erin")
        for one in self.conversations:
            await store.create(started(one, now=store.now(), ttl=None))
        await backend.close()

    def live(self, boundaries: Boundaries) -> tuple[bool, list[str]]:
        """One process: whether it was killed, and the boundaries it had seen if it was not."""

        def work(tell: Callable[[str], None]) -> None:
            boundaries.install()
            asyncio.run(self._speak(boundaries, tell))
            tell("boundaries " + json.dumps(boundaries.seen))

        lines, status = forked(work)
        seen: list[str] = []
        for line in lines:
            what, _, rest = line.partition(" ")
            if what == "begun":
                conversation, number = rest.split()
                self.begun[conversation] = int(number) + 1
            elif what == "stored":
                conversation, number = rest.split()
                self.acknowledged[conversation].add(int(number))
            elif what == "boundaries":
                seen = json.loads(rest)
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0, lines
        return killed, seen

    async def _speak(self, boundaries: Boundaries, tell: Callable[[str], None]) -> None:
        backend = backend_of(self.kind, self.folder, away=self.kind in ("spool", "replay"))
        await backend.open()
        store = backend.of("erin")

        async def write(conversation: str) -> None:
            for number in range(self.begun[conversation], self.begun[conversation] + TURNS):
                tell(f"begun {conversation} {number}")
                said = {"role": "user", "content": number, "message_id": f"u{number}"}
                answer = {"role": "assistant", "content": number, "message_id": f"a{number}"}
                await store.append(conversation, [Message(**said), Message(**answer)])  # type: ignore[arg-type]
                tell(f"stored {conversation} {number}")

        await asyncio.gather(*(write(one) for one in self.conversations))
        if self.kind == "replay":
            assert isinstance(backend, ResilientBackend)
            backend.inner.up()  # type: ignore[attr-defined]
            backend.breaker.probe_succeeded()
            await backend.recover()
        await backend.close()

    def check(self) -> Verdict:
        """What the next process finds."""

        def work(tell: Callable[[str], None]) -> None:
            tell(json.dumps(asyncio.run(self._read())))

        lines, status = forked(work)
        assert status == 0, lines
        found: dict[str, list[int]] = json.loads(lines[-1])
        verdicts = [judge(self.acknowledged[one], found[one]) for one in self.conversations]
        return sum(verdicts, Verdict())

    async def _read(self) -> dict[str, list[int]]:
        backend = backend_of(self.kind, self.folder)
        await backend.open()
        if isinstance(backend, ResilientBackend):
            assert await backend.recover()
        store = backend.of("erin")
        found = {}
        for one in self.conversations:
            found[one] = [entry.message.content for entry in await store.page(one, limit=100_000)]
        await backend.close()
        return found


def forked(work: Callable[[Callable[[str], None]], None]) -> tuple[list[str], int]:
    """Run the work in a fork; return the lines that it printed, and how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        real = os.write

        def tell(line: str) -> None:
            real(writing, f"{line}\n".encode())

        try:
            work(tell)
        except BaseException as error:  # noqa: BLE001  the parent has to hear of it
            tell(f"error {error!r}")
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    # A line that the kill cut in two does not count.
    return [line.decode() for line in content.split(b"\n")[:-1]], status


def random_kills(kills: int, source: random.Random) -> Iterator[tuple[str, Verdict, bool]]:
    """Kills at boundaries drawn at random, in lives that go on with the files of the life before."""
    with tempfile.TemporaryDirectory(prefix="aforesaid-kills-") as place:
        done = 0
        for round_ in range(10**9):
            kind = KINDS[round_ % len(KINDS)]
            folder = Path(place) / str(round_)
            folder.mkdir()
            files = Files(kind, folder)
            files.prepare()
            _, seen = files.live(Boundaries())
            for _ in range(LIVES):
                boundaries = Boundaries(kill_at=source.randrange(len(seen)), moment=source.choice(MOMENTS))
                killed, _ = files.live(boundaries)
                done += killed
                yield kind, files.check(), killed
                if done >= kills:
                    return


def every_boundary(kind: str, moment: Moment) -> Iterator[tuple[str, Verdict, bool]]:
    """A kill at each boundary that one life has, from the first to the last, each in fresh files."""
    with tempfile.TemporaryDirectory(prefix="aforesaid-kills-") as place:
        number = 0
        while True:
            folder = Path(place) / str(number)
            folder.mkdir()
            files = Files(kind, folder)
            files.prepare()
            killed, _ = files.live(Boundaries(kill_at=number, moment=moment))
            verdict = files.check()
            if not killed:
                return
            yield kind, verdict, killed
            number += 1


def first_of_each(kind: str) -> Iterator[tuple[str, Verdict, bool]]:
    """A kill at the first boundary of each name, at each moment, each in fresh files."""
    with tempfile.TemporaryDirectory(prefix="aforesaid-kills-") as place:
        folders = (Path(place) / str(number) for number in range(10**6))

        def fresh() -> Files:
            folder = next(folders)
            folder.mkdir()
            files = Files(kind, folder)
            files.prepare()
            return files

        _, seen = fresh().live(Boundaries())
        print(f"{kind}: {len(seen)} boundaries in one life: {dict(Counter(seen))}")
        for name in dict.fromkeys(seen):
            for moment in MOMENTS:
                files = fresh()
                # Somewhat later than the first: there is something to lose by then.
                at = [number for number, one in enumerate(seen) if one == name][:5][-1]
                killed, _ = files.live(Boundaries(kill_at=at, moment=moment))
                yield kind, files.check(), killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument(
        "--every", action="store_true", help="every boundary of one life, instead of random ones"
    )
    parser.add_argument("--first-of-each", choices=KINDS, help="one boundary of each name, for one kind")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # every process has its outage
    runs = random_kills(given.kills, random.Random(given.seed))
    if given.every:
        runs = (run for kind in KINDS for moment in MOMENTS for run in every_boundary(kind, moment))
    if given.first_of_each:
        runs = first_of_each(given.first_of_each)
    total, kills = Verdict(), Counter[str]()
    for kind, verdict, killed in runs:
        kills[kind] += killed
        total += verdict
        if not verdict.is_clean:
            print("NOT CLEAN", kind, verdict, flush=True)
    print(f"seed {given.seed}; kills: {dict(kills)}, together {sum(kills.values()):,}")
    print(
        f"acknowledged turns checked {total.acknowledged:,}; lost {total.lost}, doubled {total.doubled}, "
        f"torn {total.torn}, reordered {total.reordered}"
    )
    return 0 if total.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
