"""`aforesaid retention`: an owner's rules of how long conversations are kept."""

from typing import Annotated

import msgspec
import typer
from msgspec import UNSET
from rich.markup import escape

from aforesaid.cli.confirm import YesOption, confirm
from aforesaid.cli.erase import RequiredOwner
from aforesaid.cli.render import console, counted, readable
from aforesaid.cli.runtime import JsonOption, UrlOption, memory_at, print_json, run
from aforesaid.errors import InvalidInput
from aforesaid.model.lifetimes import Lifetime, RetentionRules, days, spoken_span

RuleOption = Annotated[list[str] | None, typer.Option(help="As in voice=7; 0 keeps. May be repeated.")]


def retention(
    owner: RequiredOwner,
    url: UrlOption = None,
    ttl: Annotated[
        float | None, typer.Option("--days", help="Days for this owner; 0 keeps, -1 takes the rule away.")
    ] = None,
    channel: RuleOption = None,
    tag: RuleOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the rules of an owner, or set those that are given, and apply them."""
    if ttl is not None or channel or tag:
        confirm("Set these rules? What is older than its new lifetime will be removed.", yes=yes)

    async def work() -> tuple[RetentionRules, int | None]:
        async with memory_at(url) as memory:
            manager = memory.of(owner)
            known = await manager.retention()
            rules = _changed(known, ttl, channel or [], tag or [])
            changed = None if rules == known else await manager.set_retention(rules)
            return await manager.retention(), changed

    rules, changed = run(work)
    if as_json:
        print_json({"rules": msgspec.to_builtins(rules), "changed": changed})
        return
    out = console()
    for name, ttl_ in _listed(rules):
        out.print(
            f"{escape(readable(name))}: {'keep' if ttl_ is None else spoken_span(ttl_)}", soft_wrap=True
        )
    if not rules:
        out.print("[dim]No rules of its own.[/]")
    if changed is not None:
        out.print(f"{counted(changed, 'conversation')} got another lifetime")


def _changed(
    known: RetentionRules, ttl: float | None, channels: list[str], tags: list[str]
) -> RetentionRules:
    owner = known.owner if ttl is None else UNSET if ttl == -1 else days(ttl, field="--days")
    return RetentionRules(
        owner=owner,
        channels=_with(known.channels, channels, "--channel"),
        tags=_with(known.tags, tags, "--tag"),
        conversations=known.conversations,
    )


def _with(known: dict[str, Lifetime], given: list[str], option: str) -> dict[str, Lifetime]:
    rules = dict(known)
    for pair in given:
        name, equals, number = pair.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidInput(f"{option} looks like voice=7; got {pair!r}", field=option, value=pair)
        if value == -1:
            rules.pop(name, None)
        else:
            rules[name] = days(value, field=option)
    return rules


def _listed(rules: RetentionRules) -> list[tuple[str, Lifetime]]:
    general: list[tuple[str, Lifetime]] = [] if rules.owner is UNSET else [("everything else", rules.owner)]
    return [
        *((f"conversation {name}", ttl) for name, ttl in rules.conversations.items()),
        *((f"tag {name}", ttl) for name, ttl in rules.tags.items()),
        *((f"channel {name}", ttl) for name, ttl in rules.channels.items()),
        *general,
    ]
