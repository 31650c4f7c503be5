"""`aforesaid migrate`: the schema of a store."""

from typing import Annotated

import typer
from msgspec import Struct

from aforesaid.cli.runtime import JsonOption, UrlOption, console, print_json, run, store_url
from aforesaid.contracts import Migratable, SchemaVersion, capability
from aforesaid.settings import masked_url
from aforesaid.stores.urls import backend_for


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
