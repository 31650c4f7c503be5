"""A backend that fails on request, around one that does not: before it acts, after it acts, or by hanging.

Failing after acting is the nasty kind: the work is done, and the answer is lost.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from typing import Any, Literal

from aforesaid.contracts import Backend, ConversationStore
from aforesaid.errors import StoreUnavailable

Fault = Literal["before", "after", "hang"] | None
Plan = Callable[[str], Fault]
"""What happens to the next call of this name."""

METHODS = (
    "create", "get", "update", "find", "delete", "resume", "session", "bind", "unbind", "sessions",
    "append", "rewrite", "tail", "page", "restore", "purge_expired",
    "entry", "replace", "expired", "clear", "tally",
    "put_document", "get_document", "documents", "document_kinds", "delete_document", "restore_documents",
    "log_end", "reseal", "exchange_head",
)  # fmt: skip


class Failing(Backend):
    """`plan` decides about every call; `down()` and `up()` are the two plans used most."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.plan: Plan = lambda name: None
        self.calls: list[str] = []

    def down(self, fault: Fault = "before") -> None:
        self.plan = lambda name: fault

    def up(self) -> None:
        self.plan = lambda name: None

    def faults(self, *faults: Fault) -> None:
        """What happens to the next calls, one after the other; after those, nothing."""
        coming = iter(faults)
        self.plan = lambda name: next(coming, None)

    async def open(self) -> None:
        await self.go("open", self.inner.open)

    async def close(self) -> None:
        await self.inner.close()

    def of(self, owner: str) -> ConversationStore:
        return FailingStore(self, self.inner.of(owner))  # type: ignore[abstract]  # they are set below

    async def owners(self, *, ignored_kinds: Collection[str] = ()) -> AsyncIterator[str]:
        await self.go("owners", _nothing)
        async for owner in self.inner.owners(ignored_kinds=ignored_kinds):
            yield owner
            await self.go("next owner", _nothing)

    async def purge_expired(self, now: datetime | None = None) -> int:
        return int(await self.go("purge_expired", lambda: self.inner.purge_expired(now)))

    async def go(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        fault = self.plan(name)
        if fault == "before":
            raise StoreUnavailable(f"{name} failed before it began")
        if fault == "hang":
            await asyncio.Event().wait()
        answer = await call()
        if fault == "after":
            raise StoreUnavailable(f"the answer of {name} was lost")
        return answer


async def _nothing() -> None:
    """Stand for one step of a listing."""


class FailingStore(ConversationStore):
    def __init__(self, backend: Failing, inner: ConversationStore) -> None:
        self._backend = backend
        self._inner = inner

    @property
    def owner(self) -> str:
        return self._inner.owner

    def now(self) -> datetime:
        return self._inner.now()


def _method(name: str) -> Any:
    async def call(self: FailingStore, *args: Any, **kwargs: Any) -> Any:
        return await self._backend.go(name, lambda: getattr(self._inner, name)(*args, **kwargs))

    return call


for _name in METHODS:
    setattr(FailingStore, _name, _method(_name))
