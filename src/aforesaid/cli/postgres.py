"""`aforesaid postgres …`: commands for PostgreSQL only."""

import typer

from aforesaid.cli.render import console
from aforesaid.cli.runtime import UrlOption, run, store_url
from aforesaid.errors import InvalidSetting
from aforesaid.settings import masked_url
from aforesaid.stores.urls import backend_for, parse_url

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
