"""`aforesaid migrate` and `postgres`: the schema of a store."""

from typing import Annotated

import typer
from msgspec import Struct

from aforesaid.cli.runtime import JsonOption, UrlOption, console, print_json, run, store_url
from aforesaid.contracts import Migratable, SchemaVersion, capability
from aforesaid.errors import InvalidSetting
from aforesaid.settings import masked_url
from aforesaid.stores.urls import backend_for, parse_url


class Outcome(Struct, frozen=True, kw_only=True):
    """The schema version found, the version needed, and whether the store was migrated. None: no schema."""

    url: str
    found: int | None = None
    needed: int | None = None
    migrated: bool = False

    @property
    def sentence(self) -> str:
        if self.found is None:
            return "has no schema"
        if self.migrated:
            return f"migrated from schema {self.found} to {self.needed}"
        if self.found == self.needed:
            return f"has schema {self.found} and is up to date"
        return f"has schema {self.found} and needs {self.needed}"


def migrate(
    url: UrlOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if a migration is needed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Migrate the schema of a store; create the store if it is missing."""

    async def work() -> Outcome:
        return await _migrate(store_url(url), check_only=check)

    outcome = run(work)
    if as_json:
        print_json(outcome)
    else:
        console().print(f"{outcome.url} {outcome.sentence}", soft_wrap=True, markup=False)
    if check and outcome.found != outcome.needed:
        raise typer.Exit(1)


async def _migrate(url: str, *, check_only: bool) -> Outcome:
    backend = backend_for(url)
    version: SchemaVersion | None = None
    migratable = capability(backend, Migratable)
    if migratable is not None:
        version = await migratable.schema_version()
    if version is None:
        return Outcome(url=masked_url(url))
    outcome = Outcome(url=masked_url(url), found=version.found, needed=version.needed)
    if check_only or version.found == version.needed:
        return outcome
    await backend.open()
    await backend.close()
    return Outcome(url=outcome.url, found=version.found, needed=version.needed, migrated=True)


# PostgreSQL


postgres = typer.Typer(name="postgres", help="Commands for PostgreSQL only.", no_args_is_help=True)


@postgres.callback()
def only_postgres() -> None:
    """Commands for PostgreSQL only."""


@postgres.command()
def distribute(url: UrlOption = None) -> None:
    """Distribute the tables over a Citus cluster by owner. Run it once, while no process writes."""

    async def work() -> str:
        target = store_url(url)
        if parse_url(target).scheme not in ("postgres", "postgresql"):
            raise InvalidSetting(
                f"only a postgresql: store can be distributed; got {masked_url(target)}", field="url"
            )
        from aforesaid.stores.postgres import PostgresBackend

        backend = backend_for(target)
        assert isinstance(backend, PostgresBackend)
        await backend.distribute()
        return masked_url(target)

    console().print(f"{run(work)} is distributed by owner", soft_wrap=True, markup=False)
