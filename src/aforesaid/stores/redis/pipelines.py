"""Pipelined connections: commands of all tasks share a few of them, and none waits for another's reply.

The driver opens a connection: address, TLS, login, database. Then `Pipeline` takes over its transport.
Commands of tasks that run in the same step of the event loop are written together.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis import exceptions as driver

# Connections to one server. More than one, so that a large reply delays only some of the commands.
MOST = 4

_INCOMPLETE = object()


class Pipeline(asyncio.Protocol):
    """One connection. Replies arrive in the order of the commands."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transport = connection._writer.transport
        # The driver's protocol waits for the end of the connection when it disconnects.
        self._driver_protocol = self._transport.get_protocol()
        self._reader = hiredis.Reader(
            protocolError=driver.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_INCOMPLETE,
        )
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._received = 0
        self.is_retired = False
        self._transport.set_protocol(self)
        self._transport.resume_reading()

    @property
    def load(self) -> int:
        """The number of commands without a reply."""
        return len(self._waiting)

    async def send(self, command: bytes) -> Any:
        """Send a packed command; return its reply, or raise the server's error."""
        reply = self._write(command)
        received = self._received
        try:
            return await reply
        except asyncio.CancelledError:
            # A silent connection may be dead. Later commands get another one.
            if received == self._received or self.is_retired:
                self.retire()
            raise
        except driver.ReadOnlyError:
            self.retire()  # the server has become a replica
            raise

    async def send_many(self, commands: Sequence[bytes]) -> list[Any]:
        """Send packed commands; return their replies. Raise the first error after the last reply."""
        found = await asyncio.gather(*[self._write(command) for command in commands], return_exceptions=True)
        for reply in found:
            if isinstance(reply, BaseException):
                raise reply
        return found

    def _write(self, command: bytes) -> "asyncio.Future[Any]":
        if self._transport.is_closing():
            raise driver.ConnectionError("the connection is closed")
        reply = self._loop.create_future()
        if self._unsent:
            self._unsent.append(command)
        elif self._waiting:
            # Other tasks are active: wait for those that run in this step.
            self._unsent.append(command)
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(command)
        self._waiting.append(reply)
        return reply

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._transport.write(b"".join(unsent))

    def retire(self) -> None:
        """Accept no more commands; close after the last reply that a caller waits for."""
        self.is_retired = True
        if all(reply.done() for reply in self._waiting):
            self._transport.close()

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        self._received += 1
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                if not isinstance(reply, hiredis.PushNotification):
                    _resolve(self._waiting.popleft(), reply)
        except (driver.InvalidResponse, IndexError):
            self._transport.abort()
        if self.is_retired and not self._waiting:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_retired = True
        while self._waiting:
            reason = "Connection closed by server." if exc is None else str(exc)
            _resolve(self._waiting.popleft(), driver.ConnectionError(reason))
        self._driver_protocol.connection_lost(exc)
        self._connection._close()  # otherwise the driver warns of an open connection

    async def close(self) -> None:
        await self._connection.disconnect()


def _resolve(reply: "asyncio.Future[Any]", value: Any) -> None:
    if reply.done():  # its caller was cancelled
        return
    if isinstance(value, Exception):
        reply.set_exception(value)
    else:
        reply.set_result(value)


class Pipelines:
    """The pipelines to one server, opened when they are needed."""

    def __init__(self, make_connection: Callable[[], Any]) -> None:
        self._make_connection = make_connection
        self._open: list[Pipeline] = []
        # Retired ones that wait for replies.
        self._ending: list[Pipeline] = []
        self._opening = 0

    async def get(self) -> Pipeline:
        """Return an idle pipeline; otherwise a new one, or the one with the fewest commands."""
        best: Pipeline | None = None
        for pipeline in self._open:
            if pipeline.is_retired:
                return await self._without_retired()
            if not pipeline.load:
                return pipeline
            if best is None or pipeline.load < best.load:
                best = pipeline
        if best is not None and len(self._open) + self._opening >= MOST:
            return best
        return await self._connect()

    async def _without_retired(self) -> Pipeline:
        retired = [one for one in self._open if one.is_retired]
        self._ending = [one for one in (*self._ending, *retired) if one.load]
        self._open = [one for one in self._open if not one.is_retired]
        return await self.get()

    async def _connect(self) -> Pipeline:
        self._opening += 1
        try:
            connection = self._make_connection()
            try:
                await connection.connect()
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
        finally:
            self._opening -= 1
        pipeline = Pipeline(connection)
        self._open.append(pipeline)
        return pipeline

    def retire(self) -> None:
        """Replace all pipelines: an outage ends them all, and an idle one may not have noticed."""
        for pipeline in self._open:
            pipeline.retire()

    async def close(self) -> None:
        pipelines = [*self._open, *self._ending]
        self._open, self._ending = [], []
        for pipeline in pipelines:
            await pipeline.close()
