"""`aforesaid serve`: the server."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.cli.render import console
from aforesaid.cli.runtime import ConfigOption, UrlOption, run
from aforesaid.errors import InvalidSetting, MissingExtra
from aforesaid.settings import LOG_LEVELS, LOGS, Settings, masked_url
from aforesaid.stores.urls import backend_for

HostOption = Annotated[
    str | None, typer.Option("--host", help="The address to listen on; without it, this machine alone.")
]
PortOption = Annotated[int | None, typer.Option("--port", "-p", help="The port; 0 takes any that is free.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", "-w", help="Processes; more than one need a store they can share.")
]


LogOption = Annotated[
    str | None, typer.Option("--log", help="How lines of the log look: text for people, json for machines.")
]
LogLevelOption = Annotated[
    str | None, typer.Option("--log-level", help="From which level on: debug, info, warning, error.")
]


class _Plan(Struct, frozen=True, kw_only=True):
    """What is served, where, and to whom."""

    settings: Settings
    url: str
    host: str
    port: int
    workers: int
    is_open: bool
    """Whether programs on this machine are let in without a key."""


def serve(
    url: UrlOption = None,
    host: HostOption = None,
    port: PortOption = None,
    workers: WorkersOption = None,
    config: ConfigOption = None,
    log: LogOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Serve the store over HTTP: to this machine alone, unless told otherwise. Ctrl-C stops it.

    Beyond this machine it wants keys (`aforesaid keys create`) or tokens.
    """
    _check_installed()

    def asked() -> tuple[Settings, str, str, int, int]:
        settings = with_log(Settings.load(file=config), log, log_level)
        server = settings.server
        return (
            settings,
            url or settings.store.url,
            host or server.server_host,
            server.server_port if port is None else port,
            server.server_workers if workers is None else workers,
        )

    plan = run(partial(_planned, asked))
    listening = run(partial(_listening, plan))
    try:
        _serve(plan, listening)
    finally:
        listening.close()
    console().print(f"Stopped. {kept(plan.url)}")


def _check_installed() -> None:
    async def look() -> None:
        try:
            import litestar  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError:
            raise MissingExtra("the server", extra="server") from None

    run(look)


async def _planned(asked: Callable[[], tuple[Settings, str, str, int, int]]) -> _Plan:
    """The plan, when it can be carried out: the store opens, and nobody gets in who should not."""
    from aforesaid.server.process import check_guarded, check_workers, is_loopback, opened

    settings, url, host, port, workers = await asyncio.to_thread(asked)
    check_workers(url, workers)
    async with opened(url, settings) as memory:
        is_open = await check_guarded(memory, settings.server, host)
    return _Plan(
        settings=settings,
        url=url,
        host=host,
        port=port,
        workers=workers,
        is_open=is_open and is_loopback(host),
    )


async def _listening(plan: _Plan) -> socket.socket:
    from aforesaid.server.process import bound_socket

    return bound_socket(plan.host, plan.port)


def _serve(plan: _Plan, listening: socket.socket) -> None:
    from aforesaid.server.process import fast_loop, serve_here, serve_with_workers, watched

    address = f"http://{_in_url(plan.host)}:{listening.getsockname()[1]}"
    announce = partial(_announce, plan, address)

    def work() -> Awaitable[None]:
        return serve_here(plan.url, plan.settings, listening, loopback=plan.is_open, started=announce)

    with watched(plan.settings.telemetry):
        if plan.workers == 1:
            run(work, loop_factory=fast_loop)
            return
        announce()
        serve_with_workers(plan.url, plan.settings, listening, workers=plan.workers, loopback=plan.is_open)


def with_log(settings: Settings, log: str | None, level: str | None) -> Settings:
    """The settings with what the options say about the log."""
    chosen = {"log": (log, LOGS), "log_level": (level, LOG_LEVELS)}
    given = {name: value for name, (value, _) in chosen.items() if value is not None}
    for name, value in given.items():
        if value not in chosen[name][1]:
            raise InvalidSetting.not_in(name, value, chosen[name][1])
    return replace(settings, telemetry=replace(settings.telemetry, **given))


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _announce(plan: _Plan, address: str) -> None:
    """Where to go next."""
    out = console()
    out.print(f"Aforesaid serves {masked_url(plan.url)} on [bold]{address}[/]", soft_wrap=True)
    if plan.is_open:
        out.print(
            "No key is needed on this machine; the first `aforesaid keys create` closes the door.",
            soft_wrap=True,
        )
    key = "" if plan.is_open else " -H 'Authorization: Bearer YOUR-KEY'"
    said = '{"session_id": "kitchen", "text": "Remember that I like leeks."}'
    out.print(f"  look   {address}/schema", soft_wrap=True)
    out.print(
        f"  try    curl {address}/v1/sessions/answers{key} -H 'Content-Type: application/json' -d '{said}'",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
    talk = ("", "") if plan.is_open else ("AFORESAID_KEY=YOUR-KEY ", " --owner ITS-OWNER")
    out.print(f"  talk   {talk[0]}aforesaid chat --url {address}{talk[1]}", soft_wrap=True, highlight=False)
    out.print("Ctrl-C stops it.")


def kept(url: str) -> str:
    """Where the data are, for somebody who has just stopped the server."""
    file = getattr(backend_for(url), "path", None)
    if file is not None:
        return f"Everything that was said is in {Path(file).resolve()}."
    if url.startswith("memory:"):
        return "What was said was kept in memory only, and is gone."
    return f"Everything that was said is in {masked_url(url)}."
