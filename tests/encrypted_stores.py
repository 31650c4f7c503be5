"""An encrypted backend over each of the stores, and the store inside it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aforesaid.contracts import Backend
from aforesaid.encryption import MasterKeys
from aforesaid.layers.encrypted import EncryptedBackend, Encryption, encrypted
from aforesaid.model.clock import Clock
from aforesaid.stores.urls import backend_for
from aforesaid.testing import FixedClock
from tests.builders import url_for

MASTER = bytes(range(32))
OTHER_MASTER = bytes(range(1, 33))
HOUR = timedelta(hours=1)


def inner_for(store: str, folder: Path, request: pytest.FixtureRequest, clock: Clock) -> Backend:
    return backend_for(url_for(store, folder, request), clock=clock)


def sealed_backend(inner: Backend, *masters: bytes, **options: Any) -> EncryptedBackend:
    return encrypted(inner, Encryption(master=MasterKeys(*(masters or (MASTER,))), **options))


@asynccontextmanager
async def opened(backend: EncryptedBackend) -> AsyncIterator[EncryptedBackend]:
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


__all__ = ["HOUR", "MASTER", "OTHER_MASTER", "FixedClock", "inner_for", "opened", "sealed_backend"]
