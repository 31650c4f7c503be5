"""A memory behind a server, async (`RemoteMemory`) and sync (`Client`)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import msgspec

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Backend
from aforesaid.errors import StoreUnavailable
from aforesaid.intake.messages import Intake, Redactor
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.layers.build import reached_mark
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import IdSource, new_id
from aforesaid.protocol.bodies import HealthBody
from aforesaid.remote.addresses import Server, server_at
from aforesaid.remote.calls import Call, path_of, reader
from aforesaid.remote.managers import RemoteManager, SyncManager, not_available
from aforesaid.remote.requests import OwnerCalls
from aforesaid.remote.requests.base import VERSION
from aforesaid.remote.transport import AsyncSender, Connection, Network, SyncSender
from aforesaid.settings import ConversationConfig

if TYPE_CHECKING:
    from aforesaid.layers.resilient import Health
    from aforesaid.model.lifetimes import Archiving
    from aforesaid.retention.rules import Expiring


L = TypeVar("L")


class _ClientBase:
    """Options and checks shared by both clients."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        config: ConversationConfig | None = None,
        idle_after: timedelta | None = None,
        redact: Redactor | None = None,
        network: Network = Network(),  # noqa: B008  a frozen value
        ids: IdSource = new_id,
    ) -> None:
        server = server_at(url, key=key, plain_http=network.plain_http)
        self.connection = Connection(server=server, network=network)
        self._reached = reached_mark(server.base)
        self._client_config = config
        self._client_intake = Intake(ids=ids, redact=redact)
        self._idle_after = check_span(idle_after, field="idle_after")

    def _check_reached_before(self, error: StoreUnavailable) -> None:
        """Raise if this machine has never reached the server: the URL may be wrong. Blocks."""
        if not self.connection.network.start_unreached and not self._reached.is_set():
            raise StoreUnavailable(
                f"{self.server.base} was never reached from this machine, so the URL may be wrong: {error}. "
                "To start without the server, set `start_unreached` of `Network`"
            ) from error

    @property
    def server(self) -> Server:
        """The server's address and key."""
        return self.connection.server

    def _calls(self, owner: str) -> OwnerCalls:
        return OwnerCalls(
            owner, intake=self._client_intake, config=self._client_config, idle_after=self._idle_after
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server.base!r})"


@validated
class RemoteMemory(_ClientBase):
    """A memory behind a server, returned by `aforesaid.connect`, which describes the options."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.sender = AsyncSender(self.connection)
        self.unstored = UnstoredTurns()

    archives = None
    blobs = None

    @property
    def backend(self) -> Backend:
        not_available("the store")

    @property
    def search_resources(self) -> NoReturn:
        not_available("the search index")

    def of(self, owner: str) -> RemoteManager:
        """Return the handle of one owner. Calls raise `NotAllowed` if the key does not cover the owner."""
        return RemoteManager(self._calls(owner), self.sender, self.unstored)

    async def owners(self) -> AsyncIterator[str]:
        """Yield every owner with data that the key covers."""
        for owner in await self.sender.execute(_owners()):
            yield owner

    def acting_as(self, actor: str, *, source: str = "") -> Self:
        """Return this memory unchanged: the server's audit trail records the key."""
        return self

    async def start(self) -> Self:
        """Open and check that an Aforesaid server answers. A server reached before may be unavailable."""
        await self.sender.open()
        try:
            if self.connection.network.verify:
                await self._verify_server()
        except BaseException:
            await self.sender.close()
            raise
        return self

    async def _verify_server(self) -> None:
        try:
            await self.sender.run(_identity())
        except StoreUnavailable as error:
            # An unavailable server is no reason to refuse the start, unless the URL was never
            # right.
            await asyncio.to_thread(self._check_reached_before, error)
        else:
            await asyncio.to_thread(self._reached.set)

    async def close(self) -> None:
        """Close all connections. Closing twice is safe."""
        # Queued turns are sent a last time, which needs the connections.
        try:
            await self.unstored.close()
        finally:
            await self.sender.close()

    async def health(self) -> "Health | None":
        """Return None; see `/ready` and `/metrics` of the server."""
        return None

    def layer(self, kind: type[L]) -> L | None:
        """Return None: the layers are the server's."""
        return None

    async def purge_expired(self) -> int:
        """Remove the expired conversations of all owners that the key covers; return their number."""
        return sum([await self.of(owner).purge_expired() async for owner in self.owners()])

    async def would_purge(self, within: timedelta = timedelta(0)) -> "list[tuple[str, Expiring]]":
        """Return what a purge would remove now or within a time, with owner and reason."""
        found = [
            (owner, one) async for owner in self.owners() for one in await self.of(owner).expiring(within)
        ]
        return sorted(found, key=lambda pair: pair[1].expires_at)

    async def archive_old(self, archiving: "Archiving | None" = None) -> int:
        # The server's own sweep archives; two sweeps would race for the same conversations.
        not_available("archiving by age")

    async def resume_erasures(self) -> NoReturn:
        not_available("resuming erasures")

    async def sweep(self) -> int:
        not_available("the sweep")

    def scope(self, owner: str) -> NoReturn:
        not_available("the owner scope")

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


@validated
def connect(
    url: str,
    *,
    key: str | None = None,
    config: ConversationConfig | None = None,
    idle_after: timedelta | None = None,
    redact: Redactor | None = None,
    network: Network = Network(),  # noqa: B008  a frozen value
    ids: IdSource = new_id,
) -> RemoteMemory:
    """Open the memory of a server. Its handles have the methods and values of a local memory.

    - `key`: an API key or a token of the server.
    - `config`: sizes and limits of contexts and searches; by default the server's.
    - `idle_after`: a session that was idle for longer starts a new conversation; by default the server's.
    - `redact`: a function that receives every message before it is sent and returns it, changed or not, or
      None to omit it.
    - `network`: retries, timeouts, connections and certificates (`Network`).
    - `ids`: the source of ids, for tests.

    The server decides everything else: retention, layers, images and models.
    """
    return RemoteMemory(
        url, key=key, config=config, idle_after=idle_after, redact=redact, network=network, ids=ids
    )


@validated
class Client(_ClientBase):
    """A memory behind a server, sync and thread-safe.

    with aforesaid.remote.Client("https://memory.example.org", key="…") as memory:
        memory.of("erin").add_message(conversation_id, "user", "hello")
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.sender = SyncSender(self.connection)

    def of(self, owner: str) -> SyncManager:
        """Return the handle of one owner. Calls raise `NotAllowed` if the key does not cover the owner."""
        return SyncManager(self._calls(owner), self.sender)

    def owners(self) -> Iterator[str]:
        """Yield every owner with data that the key covers."""
        yield from self.sender.execute(_owners())

    def start(self) -> Self:
        """Open and check that an Aforesaid server answers. A server reached before may be unavailable."""
        self.sender.open()
        try:
            if self.connection.network.verify:
                self._verify_server()
        except BaseException:
            self.sender.close()
            raise
        return self

    def _verify_server(self) -> None:
        try:
            self.sender.run(_identity())
        except StoreUnavailable as error:
            self._check_reached_before(error)
        else:
            self._reached.set()

    def close(self) -> None:
        """Close all connections. Closing twice is safe."""
        self.sender.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _owners() -> Call[list[str]]:
    read: Callable[[Any], list[str]] = lambda document: [str(one) for one in document["owners"]]  # noqa: E731
    return Call(method="GET", path=path_of(VERSION, "owners"), read=reader(read))


def _identity() -> Call[None]:
    """Return a call that raises `StoreForeign` unless an Aforesaid server answers."""
    return Call(method="GET", path="/health", read=reader(_check_server))


def _check_server(document: Any) -> None:
    body = msgspec.convert(document, HealthBody)
    # Many programs answer `/health` with a status; only ours names itself.
    if "server" not in document:
        raise KeyError(body.status)
