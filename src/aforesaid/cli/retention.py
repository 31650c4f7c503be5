"""`aforesaid retention`: show or change an owner's retention rules."""

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

RuleOption = Annotated[
    list[str] | None,
    typer.Option(help="NAME=DAYS, as in voice=7; 0 keeps forever, -1 removes the rule. Repeatable."),
]


def retention(
    owner: RequiredOwner,
    url: UrlOption = None,
    ttl: Annotated[
        float | None,
        typer.Option("--days", help="Days for this owner; 0 keeps forever, -1 removes the rule."),
    ] = None,
    channel: RuleOption = None,
    tag: RuleOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show an owner's retention rules, or change the given rules and apply them."""
    if ttl is not None or channel or tag:
        confirm("Set these rules? Conversations older than their new lifetime will be removed.", yes=yes)

    async def work() -> tuple[RetentionRules, int | None]:
        async with memory_at(url) as memory:
            manager = memory.of(owner)
            current = await manager.retention()
            rules = _updated(current, ttl, channel or [], tag or [])
            changed = None if rules == current else await manager.set_retention(rules)
            return await manager.retention(), changed

    rules, changed = run(work)
    if as_json:
        print_json({"rules": msgspec.to_builtins(rules), "changed": changed})
        return
    out = console()
    for name, ttl_ in _rule_rows(rules):
        out.print(
            f"{escape(readable(name))}: {'keep' if ttl_ is None else spoken_span(ttl_)}", soft_wrap=True
        )
    if not rules:
        out.print("[dim]No rules.[/]")
    if changed is not None:
        out.print(f"{counted(changed, 'conversation')} changed lifetime")


def _updated(
    current: RetentionRules, ttl: float | None, channels: list[str], tags: list[str]
) -> RetentionRules:
    owner = current.owner if ttl is None else UNSET if ttl == -1 else days(ttl, field="--days")
    return RetentionRules(
        owner=owner,
        channels=_merge(current.channels, channels, "--channel"),
        tags=_merge(current.tags, tags, "--tag"),
        conversations=current.conversations,
    )


def _merge(rules: dict[str, Lifetime], pairs: list[str], option: str) -> dict[str, Lifetime]:
    rules = dict(rules)
    for pair in pairs:
        name, equals, number = pair.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InvalidInput(
                f"{option} must be NAME=DAYS, as in voice=7; got {pair!r}", field=option, value=pair
            )
        if value == -1:
            rules.pop(name, None)
        else:
            rules[name] = days(value, field=option)
    return rules


def _rule_rows(rules: RetentionRules) -> list[tuple[str, Lifetime]]:
    general: list[tuple[str, Lifetime]] = [] if rules.owner is UNSET else [("everything else", rules.owner)]
    return [
        *((f"conversation {name}", ttl) for name, ttl in rules.conversations.items()),
        *((f"tag {name}", ttl) for name, ttl in rules.tags.items()),
        *((f"channel {name}", ttl) for name, ttl in rules.channels.items()),
        *general,
    ]
