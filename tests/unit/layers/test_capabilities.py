"""Capabilities: what a store or backend offers beyond the contract, through any number of layers."""

import re
from pathlib import Path

import pytest

import aforesaid
from aforesaid.audit import AuditTrail
from aforesaid.contracts import (
    Auditing,
    Backend,
    Bounded,
    CopyHolder,
    FileBacked,
    Migratable,
    Reindexable,
    Scrubbable,
    Sealable,
    Searchable,
    SnapshotReader,
    Spooling,
    VectorSearchable,
    Watchable,
    capability,
)
from aforesaid.layers.audited import audited
from aforesaid.layers.base import BackendWrapper, StoreWrapper
from aforesaid.layers.cached import cached
from aforesaid.layers.resilient import resilient
from aforesaid.layers.timed import timed
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.stores.sqlite import SQLiteBackend
from tests.encrypted_stores import sealed_backend

PROTOCOLS = (
    "Auditable|Auditing|Bounded|ChangeTracking|CopyHolder|FileBacked|Labelled|Migratable|Reindexable|Scrubbable|"
    "Sealable|Searchable|"
    "SnapshotReader|Spooling|VectorSearchable|Watchable"
)


class Forwarding(BackendWrapper):
    """A layer that changes nothing."""

    def of(self, owner: str) -> StoreWrapper:
        return StoreWrapper(self.inner.of(owner))


@pytest.fixture
def sqlite(tmp_path: Path) -> Backend:
    return SQLiteBackend(f"{tmp_path}/memory.db")


def test_a_wrapper_has_every_capability_of_what_it_wraps(sqlite: Backend) -> None:
    wrapped = Forwarding(Forwarding(sqlite))
    for of_backend in (Migratable, Reindexable, Scrubbable, FileBacked):
        assert capability(wrapped, of_backend) is sqlite
    for of_store in (Searchable, Sealable, SnapshotReader):
        assert type(capability(wrapped.of("erin"), of_store)) is type(sqlite.of("erin"))


def test_a_wrapper_has_no_capability_that_the_store_lacks() -> None:
    store = audited(timed(InMemoryBackend()), AuditTrail(Path("never-opened"))).of("erin")
    for protocol in (Searchable, VectorSearchable, Watchable, SnapshotReader):
        assert capability(store, protocol) is None


def test_a_layer_that_changes_a_capability_is_the_one_that_answers(sqlite: Backend, tmp_path: Path) -> None:
    store = resilient(timed(sqlite), folder=tmp_path).of("erin")
    assert capability(store, Searchable) is store
    assert capability(cached(Forwarding(sqlite)).of("erin"), Sealable) is None
    recorded: object = audited(sqlite, AuditTrail(tmp_path / "audit.jsonl")).of("erin")
    assert capability(recorded, SnapshotReader) is recorded
    sealed: object = sealed_backend(sqlite).of("erin")
    assert capability(sealed, SnapshotReader) is sealed
    for hidden in (Searchable, VectorSearchable, Sealable):
        assert capability(sealed, hidden) is None


def test_a_layer_adds_its_own_capabilities(sqlite: Backend, tmp_path: Path) -> None:
    spooling = resilient(Forwarding(InMemoryBackend()), folder=tmp_path)
    assert capability(spooling, Spooling) is spooling
    assert capability(spooling, CopyHolder) is spooling
    trail = audited(spooling, AuditTrail(tmp_path / "audit.jsonl"))
    assert capability(Forwarding(trail), Auditing) is trail
    assert capability(trail, CopyHolder) is spooling


def test_attributes_are_capabilities_too(sqlite: Backend) -> None:
    bounded = capability(timed(InMemoryBackend(max_messages=7)), Bounded)
    assert bounded is not None
    assert bounded.max_messages == 7
    assert capability(sqlite, Bounded) is None


def test_every_part_of_the_code_asks_in_one_way() -> None:
    """`isinstance` sees the outermost layer only, which implements more than its store may have."""
    folder = Path(aforesaid.__file__).parent
    probe = re.compile(rf"isinstance\([^()]*(\([^()]*\))?[^()]*\b({PROTOCOLS})\b|setattr\w*\(.*__class__\"")
    found = [
        f"{file.relative_to(folder)}: {line.strip()}"
        for file in sorted(folder.rglob("*.py"))
        for line in file.read_text().splitlines()
        if probe.search(line)
    ]
    assert found == []
