"""Serve a store in a process of its own."""

import asyncio
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import aforesaid
from aforesaid.server.app import create_app
from aforesaid.server.limits import LiveLimits
from aforesaid.server.process import Server, bind_socket, uvicorn_config
from aforesaid.settings import Settings
from tests.integration.server.live.parts import Parrot, assistant_of
from tests.processes.forking import processes

SECONDS = 120
"""Far more than a server needs to start or to stop."""


def start_server(url: str) -> tuple[BaseProcess, int]:
    """Start a server for the store at this URL; return its process and its port."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=_run, args=(url, sender), daemon=True)
    process.start()
    sender.close()
    with receiver:
        assert receiver.poll(SECONDS), "the server does not start"
        return process, receiver.recv()


def stop_server(process: BaseProcess) -> None:
    """Stop a server, which may have been killed already."""
    process.terminate()
    process.join(SECONDS)
    assert process.exitcode is not None, "the server does not stop"


def _run(url: str, port: Connection) -> None:
    asyncio.run(_serve(url, port))


async def _serve(url: str, port: Connection) -> None:
    listening = bind_socket("127.0.0.1", 0)
    settings = Settings()
    async with aforesaid.open(
        url,
        retention=aforesaid.Retention(sweep_every=None),
        models=aforesaid.Models(preload=False, embedder=None),
    ) as memory:
        app = create_app(
            memory,
            settings,
            assistant=assistant_of(Parrot()),
            live_limits=LiveLimits(poll_seconds=0.05),
            open_without_keys=True,
        )

        def started() -> None:
            port.send(listening.getsockname()[1])

        await Server(app, uvicorn_config(app, settings.server), listening=started).serve(sockets=[listening])
