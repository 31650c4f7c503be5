"""`aforesaid serve`: run the HTTP server.

The command line has a fast path for this command: see `run_lean`.
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_type_hints

import typer
from msgspec import Struct
from msgspec.structs import replace

from aforesaid.cli.runtime import ConfigOption, UrlOption, console, invocation, run
from aforesaid.contracts import FileBacked, capability
from aforesaid.errors import InvalidSetting, MissingExtra
from aforesaid.settings import LOG_LEVELS, LOGS, Settings, masked_url
from aforesaid.stores.urls import backend_for

HostOption = Annotated[
    str | None, typer.Option("--host", help="The address to listen on. Default: loopback only.")
]
PortOption = Annotated[int | None, typer.Option("--port", "-p", help="The port; 0 chooses a free one.")]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", "-w", help="Worker processes; more than one needs a store that processes can share."
    ),
]


LogOption = Annotated[str | None, typer.Option("--log", help="Log format: text or json.")]
LogLevelOption = Annotated[
    str | None, typer.Option("--log-level", help="Minimum level: debug, info, warning or error.")
]


class _Plan(Struct, frozen=True, kw_only=True):
    """The store, the address and the access of a server."""

    settings: Settings
    url: str
    host: str
    port: int
    workers: int
    is_open: bool
    """Whether local programs may connect without a key."""


def serve(
    url: UrlOption = None,
    host: HostOption = None,
    port: PortOption = None,
    workers: WorkersOption = None,
    config: ConfigOption = None,
    log: LogOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Serve the store over HTTP, by default on the loopback address only. Ctrl-C stops the server.

    On other addresses the server requires API keys (`aforesaid keys create`) or tokens.
    """
    _check_installed()

    def load() -> tuple[Settings, str, str, int, int]:
        settings = with_log(Settings.load(file=config), log, log_level)
        server = settings.server
        return (
            settings,
            url or settings.store.url,
            host or server.server_host,
            server.server_port if port is None else port,
            server.server_workers if workers is None else workers,
        )

    # Check and bind before serving, so that a mistake ends the command with a message and an exit code,
    # before any worker starts.
    plan = run(partial(_plan, load))
    listening = run(partial(_bind, plan))
    try:
        _serve(plan, listening)
    finally:
        listening.close()
    console().print(f"Stopped. {data_location(plan.url)}")


def _check_installed() -> None:
    # A coroutine, so that `run` reports the error and sets the exit code as for every other one.
    async def look() -> None:
        try:
            import litestar  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError:
            raise MissingExtra("the server", extra="server") from None

    run(look)


async def _plan(load: Callable[[], tuple[Settings, str, str, int, int]]) -> _Plan:
    """Check that the store opens and that access is restricted; return the plan."""
    from aforesaid.server.process import check_keys, check_workers, is_loopback, open_memory

    settings, url, host, port, workers = await asyncio.to_thread(load)
    check_workers(url, workers)
    async with open_memory(url, settings) as memory:
        is_open = await check_keys(memory, settings.server, host)
    return _Plan(
        settings=settings,
        url=url,
        host=host,
        port=port,
        workers=workers,
        # A server that other machines reach needs a key even before the first key exists.
        is_open=is_open and is_loopback(host),
    )


async def _bind(plan: _Plan) -> socket.socket:
    from aforesaid.server.process import bind_socket

    return bind_socket(plan.host, plan.port)


def _serve(plan: _Plan, listening: socket.socket) -> None:
    from aforesaid.server.process import new_event_loop, serve_here, serve_with_workers, with_telemetry

    address = f"http://{_in_url(plan.host)}:{listening.getsockname()[1]}"
    announce = partial(_announce, plan, address)

    def work() -> Awaitable[None]:
        return serve_here(plan.url, plan.settings, listening, loopback=plan.is_open, started=announce)

    with with_telemetry(plan.settings.telemetry):
        if plan.workers == 1:
            run(work, loop_factory=new_event_loop)
            return
        # The parent does not serve, so it announces the address before the workers listen.
        announce()
        serve_with_workers(plan.url, plan.settings, listening, workers=plan.workers, loopback=plan.is_open)


def with_log(settings: Settings, log: str | None, level: str | None) -> Settings:
    """Return the settings, overridden by the log options."""
    choices = {"log": (log, LOGS), "log_level": (level, LOG_LEVELS)}
    overrides = {name: value for name, (value, _) in choices.items() if value is not None}
    for name, value in overrides.items():
        if value not in choices[name][1]:
            raise InvalidSetting.not_in(name, value, choices[name][1])
    return replace(settings, telemetry=replace(settings.telemetry, **overrides))


def _in_url(host: str) -> str:
    # The colons of an IPv6 address would look like a port.
    return f"[{host}]" if ":" in host else host


def _announce(plan: _Plan, address: str) -> None:
    """Print the address and examples."""
    out = console()
    out.print(f"Aforesaid serves {masked_url(plan.url)} on [bold]{address}[/]", soft_wrap=True)
    out.print(data_location(plan.url), soft_wrap=True, markup=False)
    if plan.is_open:
        out.print(
            f"No key is needed on this machine until the first `{invocation()} keys create`.",
            soft_wrap=True,
        )
    key = "" if plan.is_open else " -H 'Authorization: Bearer YOUR-KEY'"
    body = '{"session_id": "kitchen", "text": "Remember that I like leeks."}'
    out.print(f"  open   {address}/", soft_wrap=True)
    out.print(f"  look   {address}/console/", soft_wrap=True)
    out.print(
        f"  try    curl {address}/v1/sessions/answers{key} -H 'Content-Type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
    key_variable, owner = ("", "") if plan.is_open else ("AFORESAID_KEY=YOUR-KEY ", " --owner YOUR-OWNER")
    out.print(
        f"  chat   {key_variable}{invocation()} chat --url {address}{owner}", soft_wrap=True, highlight=False
    )
    out.print("Ctrl-C stops the server.")


def data_location(url: str) -> str:
    """Return a sentence that says where the data is stored."""
    file = capability(backend_for(url), FileBacked)
    if file is not None:
        return f"The data is in {Path(file.path).resolve()}."
    if url.startswith("memory:"):
        return "The data is in memory only and is lost when the server stops."
    return f"The data is in {masked_url(url)}."


# The fast path. The full command line imports every command, which costs a server process about 20 MB for its
# lifetime. `run_lean` parses the declared options of `serve` with argparse. The full command line still
# handles --help and invalid arguments.


Command = Callable[..., None]
# Exit code after Ctrl-C, by shell convention.
INTERRUPTED = 130


def run_lean(command: Command, arguments: Sequence[str]) -> bool:
    """Run the command with these arguments. Return False if they need the full command line."""
    options = parse_options(command, arguments)
    if options is None:
        return False
    try:
        command(**options)
    except typer.Exit as error:
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    return True


def parse_options(command: Command, arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return the values of the command's options, or None if the arguments are unknown or invalid."""
    # Exactly what Typer accepts, nothing more: no abbreviations, and --help goes the long way.
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name, annotation in get_type_hints(command, include_extras=True).items():
        if name != "return":
            kind, option = get_args(annotation)
            # typer.Option stores its first positional argument, here the option's name, as the default.
            parser.add_argument(option.default, *option.param_decls, dest=name, type=get_args(kind)[0])
    try:
        options, unknown = parser.parse_known_args(arguments)
    except _ParseError:
        return None
    return None if unknown else vars(options)


class _ParseError(Exception):
    """The arguments do not match the declared options."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _ParseError(message)
