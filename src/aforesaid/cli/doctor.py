"""`aforesaid doctor`: print the findings of all checks with advice."""

import typer
from rich.markup import escape
from rich.table import Table

from aforesaid.cli.checkup import Finding, checkup
from aforesaid.cli.render import console, readable
from aforesaid.cli.runtime import JsonOption, UrlOption, print_json, run, store_url
from aforesaid.settings import Settings

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
