"""Random histories of branches give the same as copies, on every store and through every layer."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import aforesaid
from aforesaid.layers.cached import Cache
from aforesaid.layers.resilient import Resilience
from aforesaid.testing.contract.base import FixedClock
from tests.builders import empty_url
from tests.integration.memory.branch_histories import STEPS, History

# Histories of each store; `make explore` plays more. Behind a socket a history takes ten times as long.
HISTORIES, MORE = {"redis": 1, "postgres": 1}, 100


def layers(kind: str, folder: Path) -> aforesaid.Layers:
    if kind == "plain":
        return aforesaid.Layers(resilience="off")
    return aforesaid.Layers(
        encryption="A" * 43 + "=",
        audit=str(folder / "trail"),
        cache=Cache(),
        resilience=Resilience(folder=folder / "spool"),
        timed=True,
    )


@pytest.mark.parametrize("kind", ["plain", "all layers"])
@pytest.mark.parametrize("store", ["memory", "file", "sqlite", "redis", "postgres"])
async def test_branches_read_like_copies(
    store: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    clock = FixedClock()
    url = empty_url(store, tmp_path, request)
    options: dict[str, Any] = {
        "retention": aforesaid.Retention(sweep_every=None),
        "ttl": None,
        "clock": clock,
        "models": aforesaid.Models(summarizer="extract"),
    }
    assert settings.default is not None
    histories = MORE if settings.default.max_examples > 100 else HISTORIES.get(store, 2)
    for seed in range(histories):
        history: History | None = None
        # The second half follows a restart, except where the data ends with the process.
        for part in (1, 2):
            if history is not None and store == "memory":
                break
            async with aforesaid.open(url, layers=layers(kind, tmp_path), **options) as memory:
                history = history or History(seed * 10 + len(store) + len(kind), memory, clock)
                history.memory = memory
                for _ in range(STEPS if store == "memory" else STEPS // 2):
                    await history.step()
                if part == 2:
                    await history.check_erased()
