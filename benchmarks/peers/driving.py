"""Running jobs in workers, from our side. Above: the workloads. Below: roster, environments."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from tests.servers.postgres import Databases, PostgresServer
from tests.servers.redis import running

from benchmarks.peers.environments import BENCH, ROOT, STATE, environment, python_of
from benchmarks.peers.roster import Entrant

Figures = dict[str, Any]
PATIENCE = 180
"""Seconds that a worker may take; what takes longer is reported as not finished."""
_FLUSHES = re.compile(r"\b(fsync|fdatasync|sync_file_range|msync)\(")


class Race:
    """Folders and servers for the length of a run; each entrant gets a place of its own in them."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._cleanup = ExitStack()
        self._servers: dict[str, Any] = {}
        (BENCH / "work").mkdir(parents=True, exist_ok=True)
        self.folder = Path(
            self._cleanup.enter_context(tempfile.TemporaryDirectory(dir=BENCH / "work", prefix="run-"))
        )

    def say(self, work: str, entrant: Entrant) -> None:
        """Print the progress."""
        seconds = round(time.monotonic() - self._begin)
        print(f"{seconds // 60:3}:{seconds % 60:02} {work:6} {entrant.name}", file=sys.stderr, flush=True)

    def __enter__(self) -> "Race":
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @contextmanager
    def place(self, entrant: Entrant, *, within: Path | None = None) -> Iterator[str]:
        """Somewhere empty for a memory: a folder (on the disk, or `within` another), a flushed Redis, a
        database."""
        if entrant.place == "redis":
            yield self._redis()
        elif entrant.place == "postgres":
            yield self._databases().new()
        else:
            folder = tempfile.mkdtemp(dir=within or self.folder, prefix="aforesaid-bench-")
            yield folder
            shutil.rmtree(folder)

    def _redis(self) -> str:
        import redis

        if "redis" not in self._servers:
            # As durable as the others: the append-only file is flushed before the answer.
            port = self._cleanup.enter_context(running("--appendfsync", "always"))
            self._servers["redis"] = f"redis://127.0.0.1:{port}/0"
        url = str(self._servers["redis"])
        with redis.Redis.from_url(url) as client:
            client.flushall()
        # A memory that has reached the server before refuses one that lost its data.
        shutil.rmtree(STATE, ignore_errors=True)
        return url

    def _databases(self) -> Databases:
        if "postgres" not in self._servers:
            server = PostgresServer()
            server.start()
            self._cleanup.callback(server.stop)
            self._servers["postgres"] = Databases(server.url)
            self._cleanup.callback(self._servers["postgres"].drop)
        return cast(Databases, self._servers["postgres"])

    def run(self, entrant: Entrant, job: str, place: str, **options: Any) -> Figures:
        """A job in a worker. A failure is a result, too: it says how the worker ended."""
        answer = self._answer()
        command = self._command(entrant, job, place, answer, options)
        try:
            done = subprocess.run(
                command, **_surroundings(), capture_output=True, check=False, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not finished after {PATIENCE} s"}
        return _result(answer, done.returncode, done.stderr)

    def _answer(self) -> Path:
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".json")
        os.close(handle)
        return Path(name)

    def _command(
        self, entrant: Entrant, job: str, place: str, answer: Path, options: dict[str, Any]
    ) -> list[str]:
        # Beside the memory that is measured, so that both have the same disk.
        beside = Path(place).parent if entrant.place == "folder" else self.folder
        yardstick = tempfile.mkdtemp(dir=beside, prefix="aforesaid-yardstick-")
        self._cleanup.callback(shutil.rmtree, yardstick, ignore_errors=True)
        worker = [str(python_of(entrant.environment)), "-m", "benchmarks.peers.worker", entrant.adapter, job]
        where = ["--place", place, "--folder", yardstick, "--answer", str(answer)]
        return [*worker, *where, "--options", json.dumps(options)]

    def side_by_side(self, entrant: Entrant, job: str, place: str, each: Sequence[Figures]) -> list[Figures]:
        """Workers that begin together, once all of them are ready."""
        answers = [self._answer() for _ in each]
        workers = [
            self._started(self._command(entrant, job, place, answer, options))
            for answer, options in zip(answers, each, strict=True)
        ]
        for worker in workers:
            _line(worker, "ready")
        for worker in workers:
            _stdin(worker).write(b"go\n")
            _stdin(worker).flush()
        return [_ended(worker, answer) for worker, answer in zip(workers, answers, strict=True)]

    def _started(self, command: list[str]) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe)

    def killed(self, entrant: Entrant, place: str, *, who: str, chance: random.Random) -> list[str]:
        """Turns that a worker acknowledged before it was ended, at a moment that it did not choose."""
        options = {"who": who}
        worker = self._started(self._command(entrant, "until_killed", place, self._answer(), options))
        most = chance.randint(5, 40)
        acknowledged: list[str] = []
        before = now = time.perf_counter()
        with worker:
            for line in cast(IO[bytes], worker.stdout):
                if line.startswith(who.encode()):
                    acknowledged.append(line.decode().strip())
                    before, now = now, time.perf_counter()
                if len(acknowledged) >= most:
                    # Somewhere in the next turn, which takes about as long as the last.
                    time.sleep(chance.uniform(0, min(1.0, now - before)))
                    worker.kill()
                    break
            # Lines that it printed before the signal arrived count as acknowledged.
            rest, _ = worker.communicate()
        acknowledged += [line for line in rest.decode().split("\n")[:-1] if line.startswith(who)]
        return acknowledged

    def flushes(self, entrant: Entrant, place: str, *, number: int, size: int) -> int | None:
        """How often so many turns made the kernel flush a file; None where `strace` is missing."""
        strace = shutil.which("strace")
        if strace is None:
            return None
        log = self.folder / "strace.log"
        options = {"number": number, "size": size, "fresh": entrant.fresh}
        command = self._command(entrant, "turns", place, self._answer(), options)
        traced = [strace, "-f", "--seccomp-bpf", "-qq", "-o", str(log)]
        calls = ["-e", "trace=fsync,fdatasync,sync_file_range,msync", "-e", "signal=none"]
        done = subprocess.run(
            [*traced, *calls, *command], **_surroundings(), capture_output=True, check=False, timeout=PATIENCE
        )
        if done.returncode:
            return None
        # A call that another thread interrupts has two lines; only where it begins is there a bracket.
        return len(_FLUSHES.findall(log.read_text("utf-8", errors="replace")))


def _surroundings() -> dict[str, Any]:
    return {"cwd": ROOT, "env": environment()}


def _stdin(worker: "subprocess.Popen[bytes]") -> IO[bytes]:
    return cast(IO[bytes], worker.stdin)


def _line(worker: "subprocess.Popen[bytes]", wanted: str) -> None:
    for line in cast(IO[bytes], worker.stdout):
        if line.strip() == wanted.encode():
            return


def _ended(worker: "subprocess.Popen[bytes]", answer: Path) -> Figures:
    try:
        _, errors = worker.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.communicate()
        return {"error": f"not finished after {PATIENCE} s"}
    return _result(answer, worker.returncode, errors)


def _result(answer: Path, code: int, errors: bytes) -> Figures:
    if code:
        words = errors.decode(errors="replace").strip().splitlines()
        return {"error": words[-1][:300] if words else f"ended with {code}"}
    return cast(Figures, json.loads(answer.read_text("utf-8")))
