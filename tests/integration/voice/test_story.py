"""Asked by voice in one process, gone on with by text in the next: answered with context, client linked."""

from pathlib import Path

import pytest

from aforesaid.model.ids import new_id
from tests.builders import url_for
from tests.integration.voice.story import play
from tests.processes.forking import failure_of


@pytest.mark.parametrize("store", ["sqlite", "file", "redis", "postgres"])
def test_voice_then_text_after_a_restart(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url, owner = url_for(store, tmp_path, request), f"contractor-{new_id()}"
    for act in ("by_voice", "by_text"):
        assert failure_of(play, act, url, owner) == ""
