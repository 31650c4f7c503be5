"""Copy, export and import everything on every store."""

import io
from datetime import timedelta
from itertools import product

import pytest

from aforesaid.testing import FixedClock
from aforesaid.transfer import CopyReport, copy, count, export, import_
from tests.builders import STORES
from tests.report import MATRIX
from tests.unit.transfer.conftest import NewBackend, new_backend, new_url
from tests.unit.transfer.lives import DOCUMENTS, LONG, OWNERS, everything, live

__all__ = ["new_backend", "new_url"]

PAIRS = list(product(STORES, STORES)) if MATRIX else list(zip(STORES, STORES[1:] + STORES[:1], strict=True))
"""Each store is once the source and once the target."""


@pytest.mark.parametrize(("origin", "to"), PAIRS)
async def test_a_copy_arrives_whole(new_backend: NewBackend, clock: FixedClock, origin: str, to: str) -> None:
    source, target = await new_backend(origin), await new_backend(to)
    await live(source, clock)
    before = await everything(source)
    clock.advance(timedelta(hours=1))
    report = await copy(source, target)
    conversations = 4 * len(OWNERS) + 1
    assert await count(source) == conversations
    assert report == CopyReport(
        owners=len(OWNERS),
        conversations=conversations,
        copied=conversations,
        entries=6 * len(OWNERS) + LONG,
        sessions=2 * len(OWNERS),
        documents=DOCUMENTS * len(OWNERS),
    )
    assert await everything(target) == before
    assert await everything(source) == before
    again = await copy(source, target)
    assert (again.copied, again.unchanged, again.entries, again.sessions) == (0, conversations, 0, 0)
    assert again.documents == 0
    assert await everything(target) == before


@pytest.mark.parametrize("kind", STORES)
async def test_an_export_comes_back_whole(new_backend: NewBackend, clock: FixedClock, kind: str) -> None:
    source, target = await new_backend(kind), await new_backend(kind)
    await live(source, clock)
    file = io.BytesIO()
    report = await export(source, file)
    conversations, entries = 4 * len(OWNERS) + 1, 6 * len(OWNERS) + LONG
    assert (report.owners, report.conversations, report.entries) == (len(OWNERS), conversations, entries)
    clock.advance(timedelta(hours=1))
    first = await import_(io.BytesIO(file.getvalue()), target)
    assert first == CopyReport(
        owners=len(OWNERS),
        conversations=conversations,
        copied=conversations,
        entries=entries,
        sessions=2 * len(OWNERS),
        documents=DOCUMENTS * len(OWNERS),
    )
    assert await everything(target) == await everything(source)
    again = await import_(io.BytesIO(file.getvalue()), target)
    assert (again.copied, again.unchanged, again.entries, again.sessions) == (0, conversations, 0, 0)
    assert again.documents == 0
    assert await everything(target) == await everything(source)
