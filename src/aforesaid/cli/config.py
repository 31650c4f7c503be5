"""`aforesaid config`: print every setting with its value and source."""

import asyncio

from rich.markup import escape
from rich.table import Table

from aforesaid.cli.render import console, readable
from aforesaid.cli.runtime import ConfigOption, JsonOption, print_json, run
from aforesaid.settings import ENVIRONMENT, SECRETS, Setting, every_setting, masked_url


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
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("setting", "value", "from", "variable"):
        table.add_column(column, overflow="fold")
    for one, value in settings:
        style = "" if one.source == "default" else "bold"
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        table.add_row(
            one.name, escape(readable(shown)), escape(one.source), ENVIRONMENT[one.name], style=style
        )
    console().print(table)


def _masked(setting: Setting) -> object:
    if setting.name in SECRETS:
        return "***" if setting.value else ""
    return masked_url(setting.value) if setting.name.endswith(("url", "jwks")) else setting.value
