"""`aforesaid search` and `reindex`: search conversations; rebuild the indexes."""

from typing import Annotated, Any

import typer
from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from aforesaid.cli.runtime import (
    ROLE_STYLES,
    JsonOption,
    OwnerOption,
    UrlOption,
    console,
    counted,
    errors_console,
    managers,
    memory_at,
    print_json,
    progress_of,
    readable,
    refuse_through_server,
    run,
    store_url,
)
from aforesaid.contracts import Reindexable, capability
from aforesaid.contracts.listing import every_record
from aforesaid.memory.interface import ManagerProtocol, MemoryProtocol
from aforesaid.search.analysis import terms_of
from aforesaid.search.indexing import Indexer, remove_vectors
from aforesaid.search.passages import Line, Passage, explain_score, spans_of
from aforesaid.search.queries import first_moment, last_moment, local_zone

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
    channel: Annotated[str | None, typer.Option(help="voice, text, email, phone or another word.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token limit of all passages together.")
    ] = None,
    min_relevance: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Least relevance of a passage, from 0 to 1. Default: 0.2."),
    ] = None,
    by_words: Annotated[
        bool, typer.Option("--words", help="Lexical search only, without the embedder.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Search conversations; show the best passages with speaker, time and conversation."""

    async def work() -> tuple[Found, str | None]:
        zone = local_zone(None)
        options = {
            "role": role,
            "date_from": first_moment(date_from, field="--from", zone=zone),
            "date_to": last_moment(date_to, field="--to", zone=zone),
            "tag": tag,
            "channel": channel,
            "max_tokens": max_tokens,
            "min_relevance": min_relevance,
            "explain": explain,
        }
        if by_words:
            refuse_through_server(url, "--words")
        async with memory_at(url, by_meaning=not by_words) as memory:
            return await _search(memory, owner, query, limit, options)

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


async def _search(
    memory: MemoryProtocol, owner: str | None, query: str, limit: int, options: dict[str, Any]
) -> tuple[Found, str | None]:
    """Search one owner or all. Return the best passages, and a note if the search was incomplete."""
    found: Found = []
    note = None
    async for name, manager in managers(memory, owner):
        findings = await manager.search(query, limit, **options)
        note = note or findings.note
        found += [(name, passage) for passage in findings.passages]
    return _best(found, query, limit), note


def _best(found: Found, query: str, limit: int) -> Found:
    """Merge the passages of several owners: most relevant first; without a query, latest first."""
    if query:
        return sorted(found, key=lambda one: one[1].relevance, reverse=True)[:limit]
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


# Indexes


NO_ENCODER = "no vectors: pip install 'aforesaid[semantic]' adds search by meaning"


class Result(Struct, kw_only=True):
    """Counts of indexed messages and removed vectors."""

    words: int = 0
    """Messages added to the store's lexical index."""
    model: str | None = None
    conversations: int = 0
    messages: int = 0
    """Messages embedded, or without text."""
    removed: int = 0
    """Removed vector blocks: this model's old ones and those of other models."""


def reindex(
    url: UrlOption = None,
    owner: OwnerOption = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Keep existing vectors; add missing ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Complete the lexical index, rebuild the vectors, and remove the vectors of other models."""

    async def work() -> Result:
        result = Result()
        async with memory_at(store_url(url)) as memory:
            await _reindex_words(memory, result)
            if memory.search_resources.indexer is not None:
                await _reindex_vectors(
                    memory, memory.search_resources.indexer, result, owner, missing=missing
                )
        return result

    result = run(work)
    if as_json:
        print_json(result)
        return
    if result.words:
        console().print(f"{counted(result.words, 'message')} added to the lexical index")
    if result.model is None:
        console().print(escape(NO_ENCODER), style="dim")
        return
    where = counted(result.conversations, "conversation")
    console().print(f"{counted(result.messages, 'message')} in {where}, by {result.model}")
    if result.removed:
        console().print(f"[dim]{counted(result.removed, 'block')} of vectors removed[/]")


async def _reindex_words(memory: MemoryProtocol, result: Result) -> None:
    reindexable = capability(memory.backend, Reindexable)
    if reindexable is not None:
        with progress_of("indexing words", unit="messages") as done:
            result.words = await reindexable.reindex(done)


async def _reindex_vectors(
    memory: MemoryProtocol,
    indexer: Indexer,
    result: Result,
    owner: str | None,
    *,
    missing: bool,
) -> None:
    result.model = indexer.embedder.name
    owners = [one async for one in managers(memory, owner)]
    total = sum([record.message_count for _, m in owners async for record in every_record(m.store)])
    seen = 0
    with progress_of("indexing meanings", unit="messages", total=total) as done:
        for name, manager in owners:
            async for record in every_record(manager.store):
                await _reindex_one(indexer, result, name, manager, record.id, missing=missing)
                seen += record.message_count
                done(seen)


async def _reindex_one(
    indexer: Indexer,
    result: Result,
    owner: str,
    manager: ManagerProtocol,
    conversation_id: str,
    *,
    missing: bool,
) -> None:
    # Vectors of other models are useless to this one, so they are removed in any case.
    keep = indexer.embedder.name if missing else None
    result.removed += await remove_vectors(manager.store, conversation_id, all_but=keep)
    result.messages += await indexer.index(owner, manager.store, conversation_id)
    result.conversations += 1
