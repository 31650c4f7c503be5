"""`aforesaid doctor` and `config`: check an installation, and print its settings. Nothing is repaired."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from msgspec import Struct
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.lists import Row, print_list
from aforesaid.cli.runtime import (
    ConfigOption,
    JsonOption,
    UrlOption,
    console,
    print_json,
    readable,
    run,
    store_url,
)
from aforesaid.contracts import Backend, FileBacked, Migratable, ServerBacked, capability
from aforesaid.encryption import KEYS_KIND, KEYS_NAME
from aforesaid.errors import AforesaidError, StoreUnavailable
from aforesaid.layers.build import resilience_in, spool_folder
from aforesaid.layers.resilient import Resilience
from aforesaid.layers.resilient.connection import why_not_writable
from aforesaid.layers.resilient.dead_letters import SpoolState, spool_state
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import CLOCK_SKEW, Query
from aforesaid.settings import ENVIRONMENT, SECRETS, Setting, Settings, every_setting, masked_url
from aforesaid.stores.urls import backend_for
from aforesaid.telemetry.resources import disk_of

if TYPE_CHECKING:
    # Imported where it is used: a store without encryption needs no ciphers.
    from aforesaid.layers.encrypted import EncryptedBackend

# Checks


State = Literal["well", "warning", "problem"]

# An earlier date means that the clock was reset.
EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
# The difference of two clocks that a short network delay does not explain.
SERVER_SKEW = timedelta(seconds=2)
OWNERS_SAMPLED = 20
# The last messages of a sampled encrypted log that are verified.
MESSAGES_SAMPLED = 200
DEADLINE = 15.0


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check, with advice if something is wrong."""

    about: str
    state: State
    found: str
    advice: str | None = None


async def checkup(url: str, settings: Settings, *, clock: Clock = system_clock) -> list[Finding]:
    """Run all checks and return their findings."""
    findings = [finding async for finding in _store(url, settings, clock)]
    findings += await asyncio.to_thread(_local, url, settings, clock())
    return findings


# The store


async def _store(url: str, settings: Settings, clock: Clock) -> AsyncIterator[Finding]:
    backend = backend_for(url, clock=clock)
    where = masked_url(url)
    file = _file_of(backend)
    if file is not None and not await asyncio.to_thread(file.exists):
        yield Finding(about="store", state="well", found=f"{where}: no file yet; the first turn creates it")
        return
    try:
        # A database that accepts connections but does not answer must not hang the check.
        async with asyncio.timeout(DEADLINE):
            schema = await _schema(backend)
            yield schema
            if schema.state != "well":
                yield Finding(about="store", state="well", found=f"{where} answers")
                return  # opening the store would migrate it
            await backend.open()
            try:
                yield Finding(about="store", state="well", found=f"{where} answers")
                for finding in await _server(backend, clock):
                    yield finding
                yield await _future_times(backend, clock())
                for finding in await _encryption(backend, settings):
                    yield finding
            finally:
                await backend.close()
    except TimeoutError:
        yield _unreachable(where, f"no answer within {DEADLINE:g} s")
    except StoreUnavailable as error:
        yield _unreachable(where, str(error))
    except AforesaidError as error:
        yield Finding(
            about="store", state="problem", found=f"{where}: {error}", advice="see the message above"
        )


def _unreachable(where: str, reason: str) -> Finding:
    return Finding(
        about="store",
        state="problem",
        found=f"{where} is not usable: {reason}",
        advice="start the server, or check address, firewall and password; "
        "until then the resilient layer, if enabled, spools turns",
    )


async def _schema(backend: Backend) -> Finding:
    migratable = capability(backend, Migratable)
    if migratable is None:
        return Finding(about="schema", state="well", found="this store has no schema")
    version = await migratable.schema_version()
    if version.found == version.needed:
        return Finding(about="schema", state="well", found=f"version {version.found}, up to date")
    return Finding(
        about="schema",
        state="warning",
        found=f"version {version.found}; this release needs {version.needed}",
        advice="run `aforesaid migrate`; opening the store also migrates it",
    )


async def _server(backend: Backend, clock: Clock) -> list[Finding]:
    """Check the clock and the extensions of a store's server."""
    server = capability(backend, ServerBacked)
    if server is None:
        return []
    return [await _server_clock(server, clock), await _extensions(server)]


async def _server_clock(server: ServerBacked, clock: Clock) -> Finding:
    before = clock()
    there = await server.server_time()
    # Half of the time that the question took is on the way back.
    skew = there - (before + (clock() - before) / 2)
    if abs(skew) <= SERVER_SKEW:
        return Finding(about="clock (store)", state="well", found="agrees with this machine's")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    return Finding(
        about="clock (store)",
        state="problem" if abs(skew) > CLOCK_SKEW else "warning",
        found=f"the store's server is {abs(skew).total_seconds():,.1f} s {direction} this machine",
        advice="synchronize both clocks (NTP): lifetimes, leases and the order of messages depend on them",
    )


async def _extensions(server: ServerBacked) -> Finding:
    missing = await server.missing_extensions()
    if not missing:
        return Finding(about="extensions", state="well", found="none is missing")
    return Finding(
        about="extensions",
        state="warning",
        found=f"not used: {', '.join(missing)}; searches are slower without",
        advice="install them on the server, run CREATE EXTENSION as a superuser, then open the store as the "
        "role that owns its schema",
    )


async def _future_times(backend: Backend, now: datetime) -> Finding:
    """Check that no recent conversation has a time in the future, which means that a clock is wrong."""
    latest = now
    sampled = 0
    async for owner in backend.owners():
        page = await backend.of(owner).find(Query(limit=1))
        latest = max([latest, *(record.updated_at for record in page.conversations)])
        sampled += 1
        if sampled == OWNERS_SAMPLED:
            break
    if latest <= now + CLOCK_SKEW:
        return Finding(about="clock", state="well", found="no stored time lies in the future")
    return Finding(
        about="clock",
        state="problem",
        found=f"a conversation was stored {latest - now} ahead of this clock",
        advice="synchronize the clocks of all machines (NTP): lifetimes and order depend on them",
    )


async def _encryption(backend: Backend, settings: Settings) -> list[Finding]:
    """Check that the master key decrypts the owners' data keys, and that sampled logs are as written."""
    from aforesaid.layers.options import encryption_in

    try:
        encryption = await asyncio.to_thread(encryption_in, settings.protection)
        if encryption is None:
            return [await _without_master_key(backend)]
        from aforesaid.layers.encrypted import encrypted

        if encryption.keyring is not None:
            await encryption.keyring.open()
        try:
            sealed = encrypted(backend, encryption)
            keys = await _master_key(sealed)
            return [keys] if keys.state == "problem" else [keys, await _sealed_logs(sealed)]
        finally:
            if encryption.keyring is not None:
                await encryption.keyring.close()
    except AforesaidError as error:
        return [_encryption_problem(f"the master key is not usable: {error}")]


async def _master_key(sealed: "EncryptedBackend") -> Finding:
    found = await sealed.check_master_key(all_of_them=True)
    if found.is_wrong:
        return _encryption_problem(f"the master key does not decrypt this store: {found.error}")
    if found.failed:
        tried = found.opened + found.failed
        return _encryption_problem(
            f"the data keys of {found.failed} of {tried} owners cannot be decrypted: {found.error}"
        )
    result = f"the master key decrypts the data keys of {found.opened} owners"
    if not found.opened:
        result = "nothing is encrypted yet"
    return Finding(about="encryption", state="well", found=result)


async def _sealed_logs(sealed: "EncryptedBackend") -> Finding:
    """Verify a sample of the encrypted logs. Verifying all of them may take hours."""
    from aforesaid.layers.encrypted.rotation import verify_sample

    done = await verify_sample(sealed, owners=OWNERS_SAMPLED, messages=MESSAGES_SAMPLED)
    sample = f"{done.conversations} sampled conversations of {done.owners} owners"
    if not done.violated:
        return Finding(
            about="encrypted logs",
            state="well",
            found=f"unchanged in {sample}; `aforesaid keys verify` verifies all",
        )
    changed = ", ".join(one.conversation_id for one in done.violated)
    return Finding(
        about="encrypted logs",
        state="problem",
        found=f"{len(done.violated)} of {sample} were changed without the key: {changed}",
        advice="run `aforesaid keys verify` to verify all logs; restore the rows from a backup, "
        "or run `aforesaid keys verify --repair` to keep what is verified",
    )


def _encryption_problem(found: str) -> Finding:
    return Finding(
        about="encryption",
        state="problem",
        found=found,
        advice="set AFORESAID_MASTER_KEY or AFORESAID_MASTER_KEY_FILE to the master key of this store; "
        "during a rotation, list the new key first and the old key after it",
    )


async def _without_master_key(backend: Backend) -> Finding:
    sampled = 0
    async for owner in backend.owners():
        if await backend.of(owner).get_document(KEYS_KIND, KEYS_NAME) is not None:
            return _encryption_problem("the store is encrypted, but no master key is set")
        sampled += 1
        if sampled == OWNERS_SAMPLED:
            break
    return Finding(about="encryption", state="well", found="off for this store")


# This machine


def _local(url: str, settings: Settings, now: datetime) -> list[Finding]:
    findings = [_clock(now)]
    file = _file_of(backend_for(url))
    if file is not None:
        findings += [_permissions(file), _disk("free disk (store)", file.parent)]
    resilience = resilience_in(settings.resilience, url)
    if isinstance(resilience, Resilience):
        folder = spool_folder(url, resilience.folder)
        findings += [_spool(folder, resilience, now), _writable(folder), _disk("free disk (spool)", folder)]
    else:
        findings.append(Finding(about="spool", state="well", found="off for this store"))
    return findings


def _clock(now: datetime) -> Finding:
    if now >= EARLIEST:
        return Finding(about="clock", state="well", found=f"{now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
    return Finding(
        about="clock",
        state="problem",
        found=f"the clock shows {now:%Y-%m-%d}",
        advice="set the clock: message times and lifetimes depend on it",
    )


def _permissions(file: Path) -> Finding:
    about = "permissions"
    if not file.exists():
        problem = why_not_writable(file.parent)
        if problem is None:
            return Finding(about=about, state="well", found=f"{file.parent} is writable")
        return Finding(about=about, state="problem", found=problem, advice="choose another folder")
    if not os.access(file, os.R_OK | os.W_OK) or not os.access(file.parent, os.W_OK):
        return Finding(
            about=about,
            state="problem",
            found=f"{file} or its folder is not writable for this user",
            advice=f"run as the owner of the file, or change the owner of {file.parent}",
        )
    mode = stat.S_IMODE(file.stat().st_mode)
    if os.name != "nt" and mode & 0o077:
        return Finding(
            about=about,
            state="warning",
            found=f"other users of this machine can read {file} ({mode:o})",
            advice=f"chmod 600 {file}",
        )
    return Finding(about=about, state="well", found=f"only this user can read {file}")


def _disk(about: str, folder: Path) -> Finding:
    disk = disk_of(folder)
    found = f"{disk.free / 1024**3:,.1f} GB at {disk.folder}"
    if disk.state == "well":
        return Finding(about=about, state="well", found=found)
    return Finding(about=about, state=disk.state, found=found, advice="free disk space, or move the data")


def _writable(folder: Path) -> Finding:
    problem = why_not_writable(folder)
    if problem is None:
        return Finding(about="permissions (spool)", state="well", found=f"{folder} is writable")
    return Finding(
        about="permissions (spool)",
        state="problem",
        found=problem,
        advice="set AFORESAID_SPOOL_FOLDER to a writable folder",
    )


def _spool(folder: Path, resilience: Resilience, now: datetime) -> Finding:
    try:
        spool = spool_state(folder)
    except StoreUnavailable as error:
        return Finding(about="spool", state="problem", found=str(error), advice="see permissions (spool)")
    if spool.damaged or spool.dead_letters:
        return Finding(
            about="spool",
            state="problem",
            found=f"{spool.dead_letters} dead letters and {spool.damaged} damaged files in {folder}",
            advice="inspect them: each is a write that is missing from the store; then remove them",
        )
    if not spool.operations:
        return Finding(about="spool", state="well", found="empty")
    return Finding(
        about="spool",
        state="problem" if spool.bytes > 0.8 * resilience.spool_limit else "warning",
        found=_waiting(spool, now),
        advice="a process with this spool replays them when the store is available again; "
        "if the spool fills up, raise AFORESAID_SPOOL_LIMIT_MB",
    )


def _waiting(spool: SpoolState, now: datetime) -> str:
    age = (
        timedelta(seconds=round((now - spool.oldest).total_seconds())) if spool.oldest else "an unknown time"
    )
    return f"{spool.operations:,} operations waiting, {spool.bytes:,} bytes, the oldest for {age}"


def _file_of(backend: Backend) -> Path | None:
    file = capability(backend, FileBacked)
    return None if file is None else Path(file.path)


# The command


MARKS = {"well": "[green]well[/]", "warning": "[yellow]warning[/]", "problem": "[bold red]problem[/]"}


def doctor(url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Check store, schema, encryption, spool, clock, disk and permissions; exit 1 on a problem."""

    async def work() -> list[Finding]:
        settings = Settings.load()
        return await checkup(store_url(url), settings)

    findings = run(work)
    if as_json:
        print_json(findings)
    else:
        _show(findings)
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(finding.about, MARKS[finding.state], escape(readable(finding.found)))
        if finding.advice is not None:
            table.add_row("", "", f"[dim]→ {escape(readable(finding.advice))}[/]")
    console().print(table)


# Settings


def config(file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every setting with its value and source; secrets are masked."""

    async def work() -> list[Setting]:
        return await asyncio.to_thread(every_setting, file=file)

    settings = [(setting, _masked(setting)) for setting in run(work)]
    if as_json:
        print_json(
            [
                {"name": one.name, "value": value, "source": one.source, "variable": ENVIRONMENT[one.name]}
                for one, value in settings
            ]
        )
        return
    print_list(console(), (("setting", 28), ("value", 0)), [_row(*each) for each in settings])


def _row(setting: Setting, value: object) -> Row:
    shown = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    variable = ENVIRONMENT[setting.name]
    if setting.source == "default":
        return Row((setting.name, shown), (variable, "default"))
    return Row((setting.name, shown), (variable, f"set by {setting.source}"), style="bold")


def _masked(setting: Setting) -> object:
    if setting.name in SECRETS:
        return "***" if setting.value else ""
    return masked_url(setting.value) if setting.name.endswith(("url", "jwks")) else setting.value
