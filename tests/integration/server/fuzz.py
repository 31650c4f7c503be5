"""Schemathesis against a running server: `python -m tests.integration.server.fuzz --cases 5000`.

Every case is a request that the OpenAPI document allows, or one that it does not. None may be answered with
a 5xx, with a status that the document does not know, or with a body that it does not describe.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as with_seed
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from aforesaid.server.auth.keys import ApiKeys
from aforesaid.settings import ServerConfig
from tests.integration.server.running import UNLIMITED, serving
from tests.servers.waiting import LONGEST

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
STREAMS = frozenset({("GET", "/v1/changes")})
"""Answers without an end."""


@schemathesis.serializer("audio/wav", "audio/pcm", "application/zip", "text/csv")
def as_bytes(_: Any, value: Any) -> bytes:
    """Bodies that are no JSON, as they were made up."""
    made_up = getattr(value, "data", value)
    return made_up if isinstance(made_up, bytes) else str(made_up).encode("utf-8", "replace")


@contextmanager
def a_server(folder: Path, config: ServerConfig = UNLIMITED) -> Iterator[tuple[str, str]]:
    """A server in a thread of its own, with the key of an owner who has some conversations."""
    ready: threading.Event = threading.Event()
    where: dict[str, Any] = {}

    async def serve() -> None:
        options: dict[str, Any] = {"archives": folder / "archives", "audit": folder / "audit.jsonl"}
        async with serving(f"sqlite:///{folder}/fuzz.db", settings=config, **options) as server:
            text, _ = await ApiKeys(server.memory.backend).create(["erin"], scope="admin")
            await seed(server.memory)
            where.update(url=server.url, key=text, loop=asyncio.get_running_loop(), stop=asyncio.Event())
            ready.set()
            await where["stop"].wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    if not ready.wait(60):
        raise RuntimeError("the server did not start")
    try:
        yield where["url"], where["key"]
    finally:
        where["loop"].call_soon_threadsafe(where["stop"].set)
        thread.join(60)


async def seed(memory: Any) -> None:
    """Something to be found."""
    erin = memory.of("erin")
    for at in range(5):
        record = await erin.get_or_create_conversation(f"session {at}")
        await erin.add_message(record.id, "user", f"which chicken did we like? {at}")
        await erin.add_message(record.id, "assistant", "The one with lemon.")


class Tally:
    """How many cases there were, and what they were answered with."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.operations: Counter[str] = Counter()

    @property
    def cases(self) -> int:
        return sum(self.statuses.values())

    def add(self, case: Any, response: Any) -> None:
        self.statuses[response.status_code] += 1
        self.operations[f"{case.method} {case.path}"] += 1


def known_ids(client: httpx.Client) -> list[str]:
    answer = client.get("/v1/conversations")
    return [each["id"] for each in answer.json()["conversations"]] or ["01952f3e-6c1e-7b0a-8f57-2f8a3c9d4e10"]


def fuzz(url: str, key: str, *, cases: int, seed: int = 1) -> Tally:
    """Play so many cases, spread over all operations. Raises what a check says about the first bad one."""
    tally = Tally()
    schema = schemathesis.openapi.from_url(f"{url}/schema/openapi.json")
    operations: list[Any] = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    played = [each for each in operations if (each.method.upper(), each.path) not in STREAMS]
    chosen = random.Random(seed)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=LONGEST) as client:
        while tally.cases < cases:  # where nothing can be wrong about an operation, the others get more
            each_gets = max(2, -(-(cases - tally.cases) // (len(played) * 2)))
            for operation in played:
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    ids = chosen.choices(known_ids(client), k=3)
                    _play(operation, mode, each_gets, tally, key, ids, chosen.randrange(2**32))
    return tally


def _play(operation: Any, mode: Any, count: int, tally: Tally, key: str, ids: list[str], seed: int) -> None:
    strategy = operation.as_strategy(generation_mode=mode)
    has_id = "{conversation_id}" in operation.path
    turn = iter(range(10**9))

    @with_seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def play(case: Any) -> None:
        number = next(turn)
        if (
            number % 8
        ):  # one in eight comes with whatever headers were made up, and gets no further than the gate
            case.headers = {"Authorization": f"Bearer {key}"} | _harmless(case.headers)
        if has_id and mode is GenerationMode.POSITIVE and number % 4:
            case.path_parameters = {**(case.path_parameters or {}), "conversation_id": ids[number % len(ids)]}
        response = case.call(timeout=120)
        tally.add(case, response)
        case.validate_response(response, checks=CHECKS)

    try:
        play()
    except Exception as error:
        if type(error).__name__ == "Unsatisfiable":
            return  # nothing can be wrong about this operation
        raise


def _harmless(headers: Any) -> dict[str, str]:
    """Made-up headers, without those that say who asks."""
    who = {"authorization", "aforesaid-owner"}
    return {name: value for name, value in dict(headers or {}).items() if name.lower() not in who}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    given_ = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, a_server(Path(folder)) as (url, key):
        tally = fuzz(url, key, cases=given_.cases)
    print(f"{tally.cases:,} cases over {len(tally.operations)} operations")
    for status, count in sorted(tally.statuses.items()):
        print(f"  {status}  {count:,}")
    if tally.cases < given_.cases:
        sys.exit(f"only {tally.cases} cases were played")


if __name__ == "__main__":
    main()
