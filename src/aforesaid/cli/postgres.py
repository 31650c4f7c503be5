"""`aforesaid postgres …`: what only PostgreSQL has."""

import typer

from aforesaid.cli.render import console
from aforesaid.cli.runtime import UrlOption, run, settled_url
from aforesaid.errors import InvalidSetting
from aforesaid.settings import masked_url
from aforesaid.stores.urls import backend_for, parse_url

postgres = typer.Typer(name="postgres", help="What only PostgreSQL has.", no_args_is_help=True)


@postgres.callback()
def only_postgres() -> None:
    """What only PostgreSQL has."""


@postgres.command()
def distribute(url: UrlOption = None) -> None:
    """Spread the tables over the machines of a Citus cluster, by owner: once, while nobody writes."""

    async def work() -> str:
        place = settled_url(url)
        if parse_url(place).scheme not in ("postgres", "postgresql"):
            raise InvalidSetting(
                f"only a postgresql: store can be distributed; got {masked_url(place)}", field="url"
            )
        from aforesaid.stores.postgres import PostgresBackend

        backend = backend_for(place)
        assert isinstance(backend, PostgresBackend)
        await backend.distribute()
        return masked_url(place)

    console().print(f"{run(work)} is distributed by owner", soft_wrap=True, markup=False)
