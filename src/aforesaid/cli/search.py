"""`aforesaid search "…"`: search conversations and highlight the matches."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from aforesaid.cli.render import ROLE_STYLES, console, errors_console, readable
from aforesaid.cli.runtime import (
    JsonOption,
    OwnerOption,
    UrlOption,
    managers,
    memory_at,
    print_json,
    refuse_through_server,
    run,
)
from aforesaid.memory.manager import ConversationManager
from aforesaid.search.analysis import terms_of
from aforesaid.search.passages import Line, Passage, explain_score, spans_of
from aforesaid.search.queries import first_moment, last_moment, local_zone
from aforesaid.search.searcher import Findings

Found = list[tuple[str, Passage]]


def search(
    query: Annotated[str, typer.Argument(help="The search query; empty lists the latest messages.")] = "",
    url: UrlOption = None,
    owner: OwnerOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of passages.")] = 5,
    role: Annotated[str | None, typer.Option(help="user, assistant or tool.")] = None,
    date_from: Annotated[str | None, typer.Option("--from", help="The first day or time.")] = None,
    date_to: Annotated[str | None, typer.Option("--to", help="The last day or time.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only messages or conversations with this tag.")] = None,
    channel: Annotated[str | None, typer.Option(help="voice, text, email or phone.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token limit of all passages together.")
    ] = None,
    by_words: Annotated[
        bool, typer.Option("--words", help="Lexical search only, without the embedder.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search conversations; show the best passages with speaker, time and conversation."""

    async def search_one(manager: ConversationManager) -> Findings:
        zone = local_zone(None)
        return await manager.search(
            query,
            limit,
            role=role,  # type: ignore[arg-type]
            date_from=first_moment(date_from, field="--from", zone=zone),
            date_to=last_moment(date_to, field="--to", zone=zone),
            tag=tag,
            channel=channel,  # type: ignore[arg-type]
            max_tokens=max_tokens,
            explain=explain,
        )

    async def work() -> tuple[Found, str | None]:
        found: Found = []
        note = None
        if by_words:
            refuse_through_server(url, "--words")
        async with memory_at(url, by_meaning=not by_words) as memory:
            async for name, manager in managers(memory, owner):
                findings = await search_one(manager)
                note = note or findings.note
                found += [(name, passage) for passage in findings.passages]
        return _best(found, query, limit), note

    found, note = run(work)
    if as_json:
        print_json([_document(name, passage) for name, passage in found])
        return
    out = console()
    for name, passage in found:
        _print(out, name, passage, terms_of(query))
    if not found:
        out.print("[dim]No results.[/]")
    if note and query and not by_words:
        errors_console().print(f"[dim]{escape(note)}[/]")


def _best(found: Found, query: str, limit: int) -> Found:
    """Merge the passages of several owners: best score first; without a query, latest first."""
    if query:
        return sorted(found, key=lambda one: one[1].score, reverse=True)[:limit]
    return sorted(found, key=lambda one: one[1].said_at, reverse=True)[:limit]


def _document(owner: str, passage: Passage) -> dict[str, Any]:
    import msgspec

    return {"owner": owner, **msgspec.to_builtins(passage)}


def _print(out: Console, owner: str, passage: Passage, terms: list[str]) -> None:
    when = f"{passage.said_at:%a} {passage.said_at.day} {passage.said_at:%b %Y, %H:%M}"
    facts = [escape(readable(owner)), when, passage.ago]
    facts += [escape(readable(passage.subject))] if passage.subject else []
    out.print(f"[dim]{' · '.join(facts)} · {passage.conversation_id}[/]")
    if passage.before:
        out.print(_neighbour(passage.before))
    line = Text(f"{readable(passage.speaker)}: ", style=ROLE_STYLES[passage.role])
    out.print(line + _highlighted(passage.text, terms))
    if passage.after:
        out.print(_neighbour(passage.after))
    if passage.parts:
        out.print(Text(f"  {explain_score(passage.score, passage.parts)}", style="magenta"))
    out.print()


def _neighbour(line: Line) -> Text:
    return Text(readable(f"  … {line.speaker}: {line.text}"), style="dim")


def _highlighted(text: str, terms: list[str]) -> Text:
    highlighted = Text(readable(text), style="")
    for span in spans_of(text, terms):
        highlighted.stylize("bold yellow", span.start, span.end)
    return highlighted
