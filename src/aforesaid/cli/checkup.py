"""The checkup: is everything there that keeping conversations needs, and if not, what is to be done.

Looks at store, schema, encryption, spool, clock, free disk and permissions, and repairs none of them. Above:
`aforesaid doctor`. Below: stores, layers, settings.
"""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from msgspec import Struct

from aforesaid.contracts import Backend, Migratable
from aforesaid.errors import AforesaidError, StoreUnavailable
from aforesaid.layers.build import resilience_in, spool_folder
from aforesaid.layers.resilient import Resilience
from aforesaid.layers.resilient.backend import why_not_writable
from aforesaid.layers.resilient.inspect import SpoolState, look
from aforesaid.model.clock import Clock, system_clock
from aforesaid.model.conversations import CLOCK_SKEW, Query
from aforesaid.settings import Settings, masked_url
from aforesaid.stores.urls import backend_for

State = Literal["well", "warning", "problem"]

EARLIEST = datetime(2025, 1, 1, tzinfo=UTC)
"""A clock that says less has lost its battery."""
LITTLE_DISK, NO_DISK = 1024**3, 100 * 1024**2
"""Bytes below which there is a warning, and below which there is a problem."""
OWNERS_LOOKED_AT = 20
DEADLINE = 15.0


class Finding(Struct, frozen=True, kw_only=True):
    """What was found about one thing, and what to do about it."""

    about: str
    state: State
    found: str
    advice: str | None = None


async def checkup(url: str, settings: Settings, *, clock: Clock = system_clock) -> list[Finding]:
    """Look at everything, one after the other."""
    findings = [finding async for finding in _store(url, settings, clock)]
    findings += await asyncio.to_thread(_local, url, settings, clock())
    return findings


# The store


async def _store(url: str, settings: Settings, clock: Clock) -> AsyncIterator[Finding]:
    backend = backend_for(url, clock=clock)
    where = masked_url(url)
    file = _file_of(backend)
    if file is not None and not await asyncio.to_thread(file.exists):
        yield Finding(about="store", state="well", found=f"{where}: no file yet; the first turn makes it")
        return
    try:
        async with asyncio.timeout(DEADLINE):
            schema = await _schema(backend)
            yield schema
            if schema.state != "well":
                yield Finding(about="store", state="well", found=f"{where} answers")
                return  # opening it would bring it up to date, which is not for us to decide
            await backend.open()
            try:
                yield Finding(about="store", state="well", found=f"{where} answers")
                yield await _ahead(backend, clock())
                yield await _encryption(backend, settings)
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


def _unreachable(where: str, why: str) -> Finding:
    return Finding(
        about="store",
        state="problem",
        found=f"{where} cannot be used: {why}",
        advice="start the server, or check address, firewall and password; turns go to the spool meanwhile "
        "where the resilient layer is on",
    )


async def _schema(backend: Backend) -> Finding:
    if not isinstance(backend, Migratable):
        return Finding(about="schema", state="well", found="this store needs none")
    version = await backend.schema_version()
    if version.found == version.needed:
        return Finding(about="schema", state="well", found=f"version {version.found}, up to date")
    return Finding(
        about="schema",
        state="warning",
        found=f"version {version.found}; this release needs {version.needed}",
        advice="run `aforesaid migrate`; opening the store does it too",
    )


async def _ahead(backend: Backend, now: datetime) -> Finding:
    """Whether what was stored last lies in the future: then this clock is late, or another was early."""
    latest = now
    looked_at = 0
    async for owner in backend.owners():
        page = await backend.of(owner).find(Query(limit=1))
        latest = max([latest, *(record.updated_at for record in page.conversations)])
        looked_at += 1
        if looked_at == OWNERS_LOOKED_AT:
            break
    if latest <= now + CLOCK_SKEW:
        return Finding(about="clock", state="well", found="nothing was stored in the future")
    return Finding(
        about="clock",
        state="problem",
        found=f"a conversation was stored {latest - now} ahead of this clock",
        advice="set the clocks of all machines by a time server: lifetimes and order depend on them",
    )


async def _encryption(backend: Backend, settings: Settings) -> Finding:
    """Whether the master key that the settings name opens what is stored."""
    from aforesaid.layers.encrypted import encrypted
    from aforesaid.layers.options import encryption_in

    try:
        encryption = await asyncio.to_thread(encryption_in, settings.protection)
        if encryption is None:
            return await _without_master_key(backend)
        if encryption.keyring is not None:
            await encryption.keyring.open()
        try:
            found = await encrypted(backend, encryption).check_master_key(all_of_them=True)
        finally:
            if encryption.keyring is not None:
                await encryption.keyring.close()
    except AforesaidError as error:
        return _sealed_badly(f"the master key cannot be used: {error}")
    if found.is_wrong:
        return _sealed_badly(f"the master key does not open this store: {found.error}")
    if found.failed:
        tried = found.opened + found.failed
        return _sealed_badly(f"the keys of {found.failed} of {tried} owners do not open: {found.error}")
    opened = f"the master key opens the keys of {found.opened} owners"
    what = opened if found.opened else "nothing is sealed yet"
    return Finding(about="encryption", state="well", found=what)


def _sealed_badly(found: str) -> Finding:
    return Finding(
        about="encryption",
        state="problem",
        found=found,
        advice="set AFORESAID_MASTER_KEY or AFORESAID_MASTER_KEY_FILE to the master key that this store was "
        "encrypted with; after a rotation the old one may stand behind the new one",
    )


async def _without_master_key(backend: Backend) -> Finding:
    from aforesaid.layers.encrypted.keyring import KIND

    looked_at = 0
    async for owner in backend.owners():
        if await backend.of(owner).get_document(KIND, "data") is not None:
            return _sealed_badly("the store is encrypted, and no master key is set")
        looked_at += 1
        if looked_at == OWNERS_LOOKED_AT:
            break
    return Finding(about="encryption", state="well", found="off for this store")


# This machine


def _local(url: str, settings: Settings, now: datetime) -> list[Finding]:
    findings = [_clock(now)]
    file = _file_of(backend_for(url))
    if file is not None:
        findings += [_permissions(file), _disk("free disk (store)", file.parent)]
    chosen = resilience_in(settings.resilience, url)
    if isinstance(chosen, Resilience):
        folder = spool_folder(url, chosen.folder)
        findings += [_spool(folder, chosen, now), _writable(folder), _disk("free disk (spool)", folder)]
    else:
        findings.append(Finding(about="spool", state="well", found="off for this store"))
    return findings


def _clock(now: datetime) -> Finding:
    if now >= EARLIEST:
        return Finding(about="clock", state="well", found=f"{now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
    return Finding(
        about="clock",
        state="problem",
        found=f"it says {now:%Y-%m-%d}",
        advice="set the clock: messages are stamped with it, and lifetimes end by it",
    )


def _permissions(file: Path) -> Finding:
    about = "permissions"
    if not file.exists():
        problem = why_not_writable(file.parent)
        if problem is None:
            return Finding(about=about, state="well", found=f"{file.parent} can be written")
        return Finding(about=about, state="problem", found=problem, advice="choose another folder")
    if not os.access(file, os.R_OK | os.W_OK) or not os.access(file.parent, os.W_OK):
        return Finding(
            about=about,
            state="problem",
            found=f"{file} or its folder cannot be written by this user",
            advice=f"run as the user who owns it, or change the owner of {file.parent}",
        )
    mode = stat.S_IMODE(file.stat().st_mode)
    if os.name != "nt" and mode & 0o077:
        return Finding(
            about=about,
            state="warning",
            found=f"others on this machine can read {file} ({mode:o})",
            advice=f"chmod 600 {file}",
        )
    return Finding(about=about, state="well", found=f"{file} is this user's alone")


def _disk(about: str, folder: Path) -> Finding:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 1024**3:,.1f} GB at {folder}"
    if free >= LITTLE_DISK:
        return Finding(about=about, state="well", found=found)
    state: State = "problem" if free < NO_DISK else "warning"
    return Finding(about=about, state=state, found=found, advice="make room, or keep data elsewhere")


def _writable(folder: Path) -> Finding:
    problem = why_not_writable(folder)
    if problem is None:
        return Finding(about="permissions (spool)", state="well", found=f"{folder} can be written")
    return Finding(
        about="permissions (spool)",
        state="problem",
        found=problem,
        advice="set AFORESAID_SPOOL_FOLDER to a folder that this user may write",
    )


def _spool(folder: Path, chosen: Resilience, now: datetime) -> Finding:
    try:
        held = look(folder)
    except StoreUnavailable as error:
        return Finding(about="spool", state="problem", found=str(error), advice="see permissions (spool)")
    if held.damaged or held.dead_letters:
        return Finding(
            about="spool",
            state="problem",
            found=f"{held.dead_letters} dead letters and {held.damaged} damaged files in {folder}",
            advice="read them: each is something that was said and is not in the store; then remove them",
        )
    if not held.operations:
        return Finding(about="spool", state="well", found="nothing waits")
    return Finding(
        about="spool",
        state="problem" if held.bytes > 0.8 * chosen.spool_limit else "warning",
        found=_waiting(held, now),
        advice="they are stored when the store is back and a process with this spool runs; "
        "if it fills up, raise AFORESAID_SPOOL_LIMIT_MB",
    )


def _waiting(held: SpoolState, now: datetime) -> str:
    age = timedelta(seconds=round((now - held.oldest).total_seconds())) if held.oldest else "an unknown time"
    return f"{held.operations:,} operations wait, {held.bytes:,} bytes, the first since {age}"


def _file_of(backend: Backend) -> Path | None:
    path = getattr(backend, "path", None)
    return None if path is None else Path(path)
