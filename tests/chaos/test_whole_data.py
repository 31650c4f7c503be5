"""Operations that need all data, while a real server comes and goes. `make chaos` plays the long run."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.servers import SERVERS, Server
from tests.chaos.whole_data import OPERATIONS, Run


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = SERVERS[request.param]()
    server.start()
    try:
        yield server
    finally:
        server.stop()


class EachOnce(random.Random):
    """Chance, but for the operations: one after the other."""

    def __init__(self) -> None:
        super().__init__(1)
        self._coming = sorted(OPERATIONS)

    def choice(self, seq: object) -> object:  # type: ignore[override]
        if seq == sorted(OPERATIONS):
            self._coming.append(self._coming[0])
            return self._coming.pop(0)
        return super().choice(seq)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("server", sorted(SERVERS), indirect=True)
async def test_every_operation_during_a_replay_loses_nothing(server: Server, tmp_path: Path) -> None:
    figures = await Run(server, tmp_path, EachOnce()).rounds(len(OPERATIONS) + 1)
    assert not figures.wrong, str(figures)
    assert {*figures.done, *figures.refused} == OPERATIONS.keys()
