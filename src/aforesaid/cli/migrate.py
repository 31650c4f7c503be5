"""`aforesaid migrate`: bring a store's schema up to date, or say whether it is."""

from typing import Annotated

import typer
from msgspec import Struct

from aforesaid.cli.render import console
from aforesaid.cli.runtime import JsonOption, UrlOption, print_json, run, settled_url
from aforesaid.contracts import Migratable, SchemaVersion
from aforesaid.settings import masked_url
from aforesaid.stores.urls import backend_for


class Outcome(Struct, frozen=True, kw_only=True):
    """What the store has, what it needs, and what was done. A store without a schema has neither."""

    url: str
    found: int | None = None
    needed: int | None = None
    migrated: bool = False

    @property
    def sentence(self) -> str:
        if self.found is None:
            return "needs no schema"
        if self.migrated:
            return f"brought from schema {self.found} to {self.needed}"
        if self.found == self.needed:
            return f"has schema {self.found} and is up to date"
        return f"has schema {self.found} and needs {self.needed}"


def migrate(
    url: UrlOption = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when it is needed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the schema of a store up to date; a new store is made."""

    async def work() -> Outcome:
        return await _migrate(settled_url(url), only_look=check)

    outcome = run(work)
    if as_json:
        print_json(outcome)
    else:
        console().print(f"{outcome.url} {outcome.sentence}", soft_wrap=True, markup=False)
    if check and outcome.found != outcome.needed:
        raise typer.Exit(1)


async def _migrate(url: str, *, only_look: bool) -> Outcome:
    backend = backend_for(url)
    version: SchemaVersion | None = None
    if isinstance(backend, Migratable):
        version = await backend.schema_version()
    if version is None:
        return Outcome(url=masked_url(url))
    outcome = Outcome(url=masked_url(url), found=version.found, needed=version.needed)
    if only_look or version.found == version.needed:
        return outcome
    await backend.open()
    await backend.close()
    return Outcome(url=outcome.url, found=version.found, needed=version.needed, migrated=True)
