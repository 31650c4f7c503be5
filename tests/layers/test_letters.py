"""Dead letters: one file that all processes of a store share."""

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recollect.errors import ConversationNotFound, StoreUnavailable
from recollect.layers.resilient import letters
from recollect.layers.resilient.operations import Operation, Unbound, encode
from recollect.stores import locks

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def keep(folder: Path, owner: str) -> None:
    payload = encode(Operation(owner=owner, at=NOW, deed=Unbound(session_id="kitchen")))
    letters.keep(folder, payload, ConversationNotFound("x"), now=NOW)


def test_what_is_set_aside_while_others_are_forgotten_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "bob")
    waits_or_is_through = threading.Event()

    def keep_hers() -> None:
        keep(tmp_path, "erin")
        waits_or_is_through.set()

    keeping = threading.Thread(target=keep_hers)
    replace: Callable[[Path, Path], None] = os.replace

    def replace_later(fresh: Path, old: Path) -> None:
        keeping.start()
        assert waits_or_is_through.wait(10)
        replace(fresh, old)

    monkeypatch.setattr(os, "replace", replace_later)
    monkeypatch.setattr(time, "sleep", lambda _: waits_or_is_through.set())
    assert letters.forget(tmp_path, "bob", None) == 1
    keeping.join()
    assert letters.count(tmp_path) == 1


def test_whoever_holds_the_letters_for_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LONGEST_WAIT", 0)
    with locks.held(tmp_path / "dead-letters.lock"), pytest.raises(StoreUnavailable, match="too long"):
        keep(tmp_path, "erin")
    keep(tmp_path, "erin")
    assert [path.name for path in tmp_path.iterdir()] == [letters.NAME]
