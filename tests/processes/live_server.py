"""Serve in a process of its own and print the port: `python -m tests.processes.live_server URL`."""

import argparse
import asyncio
import json

import aforesaid
from aforesaid.server.app import create_app
from aforesaid.server.limits import LiveLimits
from aforesaid.server.process import Server, bind_socket, uvicorn_config
from aforesaid.settings import Settings
from tests.integration.server.live.parts import Parrot, assistant_of


async def serve(url: str) -> None:
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
            print(json.dumps({"port": listening.getsockname()[1]}), flush=True)

        await Server(app, uvicorn_config(app, settings.server), listening=started).serve(sockets=[listening])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    asyncio.run(serve(parser.parse_args().url))
