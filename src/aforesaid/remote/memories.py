"""A memory behind a server: handles bound to owners, awaited or waited for. Below: managers, sending."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from aforesaid._internal.arguments import validated
from aforesaid.contracts import Backend
from aforesaid.errors import InvalidSetting, StoreUnavailable
from aforesaid.intake.messages import Intake
from aforesaid.intake.redaction import Redactor
from aforesaid.intake.unstored_turns import UnstoredTurns
from aforesaid.layers.build import reached_mark
from aforesaid.memory.opening import Memory
from aforesaid.model.conversations import check_span
from aforesaid.model.ids import IdSource, new_id
from aforesaid.protocol.bodies import HealthBody
from aforesaid.remote.addresses import Server, server_at
from aforesaid.remote.attempts import RetryPolicy
from aforesaid.remote.calls import Call, path_of
from aforesaid.remote.managers import RemoteManager, SyncManager
from aforesaid.remote.requests import OwnerCalls
from aforesaid.remote.requests.base import VERSION
from aforesaid.remote.responses import reader
from aforesaid.remote.transport import CONNECTIONS, AsyncSender, Options, SyncSender
from aforesaid.settings import ConversationConfig

if TYPE_CHECKING:
    from aforesaid.layers.resilient import Health
    from aforesaid.model.lifetimes import Archiving
    from aforesaid.retention.rules import Expiring


class _Opened:
    """What both kinds of client are opened with."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        config: ConversationConfig | None = None,
        ids: IdSource = new_id,
        idle_after: timedelta | None = None,
        redact: Redactor | None = None,
        patience: RetryPolicy = RetryPolicy(),  # noqa: B008  a frozen value
        connections: int = CONNECTIONS,
        tls: ssl.SSLContext | None = None,
        plain_http: bool = False,
        verify: bool = True,
        start_unreached: bool = False,
    ) -> None:
        server = server_at(url, key=key, plain_http=plain_http)
        self._verify = verify
        self._start_unreached = start_unreached
        self._reached = reached_mark(server.base)
        self.options = Options(server=server, patience=patience, connections=connections, tls=tls)
        self._own_config = config
        self._remote_intake = Intake(ids=ids, redact=redact)
        self._idle_after = check_span(idle_after, field="idle_after")

    def _check_may_be_away(self, error: StoreUnavailable) -> None:
        """Raise unless the server was reached from this machine before. Blocks."""
        if not self._start_unreached and not self._reached.is_set():
            raise StoreUnavailable(
                f"{self.server.base} was never reached from this machine, so the URL may be wrong: {error}. "
                "To start without it, give Resilience(start_unreached=True)"
            ) from error

    @property
    def server(self) -> Server:
        """Where the server is."""
        return self.options.server

    def _calls(self, owner: str) -> OwnerCalls:
        return OwnerCalls(
            owner, intake=self._remote_intake, config=self._own_config, idle_after=self._idle_after
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server.base!r})"


@validated
class RemoteMemory(_Opened, Memory):
    """A memory behind a server: what `aforesaid.open("https://…")` gives.

    `key`: an API key or a token of this server. `config`, `idle_after`, `ids` and `redact` are as for a store
    of one's own; where `config` and `idle_after` are not given, the server decides. `patience`: timeouts
    and repeated attempts. `connections`: requests under way at once. `tls`: whom to trust. `plain_http`:
    whether a key may go unencrypted to another machine. `verify`: whether `start` checks that a server of
    ours is there. `start_unreached`: whether a server may be away that this machine has never reached.
    """

    def __init__(self, url: str, **options: Any) -> None:
        # What a memory has of a store is the server's business: nothing of it is made here.
        _Opened.__init__(self, url, **options)
        self.sender = AsyncSender(self.options)
        self.unstored = UnstoredTurns()

    archives = None
    blobs = None

    @property
    def backend(self) -> Backend:  # type: ignore[override]
        _servers_business("the store itself")

    @property
    def search_resources(self) -> NoReturn:  # type: ignore[override]
        _servers_business("what searches share")

    def of(self, owner: str) -> RemoteManager:
        """The handle of one owner. Whether the key reaches them, the server says at the first call."""
        return RemoteManager(self._calls(owner), self.sender, self.unstored)

    async def owners(self) -> AsyncIterator[str]:
        """Everybody whom the key reaches and who has something here."""
        for owner in await self.sender.carry_out(_owners()):
            yield owner

    def acting_as(self, actor: str, *, source: str = "") -> Self:
        """This memory: the server notes in its audit trail whose key it was."""
        return self

    async def start(self) -> Self:
        """Get ready, and check that a server of ours is there. One that was reached before may be away."""
        await self.sender.open()
        try:
            if self._verify:
                await self._verify_server()
        except BaseException:
            await self.sender.close()
            raise
        return self

    async def _verify_server(self) -> None:
        try:
            await self.sender.run(_identity())
        except StoreUnavailable as error:
            await asyncio.to_thread(self._check_may_be_away, error)
        else:
            await asyncio.to_thread(self._reached.set)

    async def close(self) -> None:
        """Let go of all connections. Closing twice is fine."""
        try:
            await self.unstored.close()
        finally:
            await self.sender.close()

    async def health(self) -> "Health | None":
        """None: how the store is doing, `/ready` and `/metrics` of the server say."""
        return None

    async def purge_expired(self) -> int:
        """Remove the expired conversations of everybody whom the key reaches; returns how many."""
        return sum([await self.of(owner).purge_expired() async for owner in self.owners()])

    async def would_purge(self, within: timedelta = timedelta(0)) -> "list[tuple[str, Expiring]]":
        """What a purge would remove now, or will after some time, of whom and why: a dry run."""
        found = [
            (owner, one) async for owner in self.owners() for one in await self.of(owner).expiring(within)
        ]
        return sorted(found, key=lambda pair: pair[1].expires_at)

    async def archive_old(self, archiving: "Archiving | None" = None) -> int:
        _servers_business("archiving by age")

    async def resume_erasures(self) -> NoReturn:
        _servers_business("going on with erasures")

    async def sweep(self) -> int:
        _servers_business("the sweep")

    def scope(self, owner: str) -> NoReturn:
        _servers_business("the premises")

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()


@validated
class Client(_Opened):
    """A memory behind a server, for code that does not await; may be used by several threads.

    with aforesaid.client.Client("https://memory.example.org", key="…") as memory:
        memory.of("erin").add_message(conversation_id, "user", "hello")
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.sender = SyncSender(self.options)

    def of(self, owner: str) -> SyncManager:
        """The handle of one owner. Whether the key reaches them, the server says at the first call."""
        return SyncManager(self._calls(owner), self.sender)

    def owners(self) -> Iterator[str]:
        """Everybody whom the key reaches and who has something here."""
        yield from self.sender.carry_out(_owners())

    def start(self) -> Self:
        """Get ready, and check that a server of ours is there. One that was reached before may be away."""
        self.sender.open()
        try:
            if self._verify:
                self._verify_server()
        except BaseException:
            self.sender.close()
            raise
        return self

    def _verify_server(self) -> None:
        try:
            self.sender.run(_identity())
        except StoreUnavailable as error:
            self._check_may_be_away(error)
        else:
            self._reached.set()

    def close(self) -> None:
        """Let go of all connections. Closing twice is fine."""
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
    """Asks who is there. Raises `StoreForeign` for anything but a server of ours."""
    return Call(method="GET", path="/health", read=reader(_check_ours))


def _check_ours(document: Any) -> None:
    body = msgspec.convert(document, HealthBody)
    if "server" not in document:
        raise KeyError(body.status)


def _servers_business(what: str) -> NoReturn:
    raise InvalidSetting(
        f"{what} is the server's business: open the store itself for this, not the server's URL", field="url"
    )
