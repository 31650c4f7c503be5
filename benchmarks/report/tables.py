"""Write the section of each workload from its results."""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.report.numbers import many, size, span, table, times

Results = dict[str, Any]
MARK = 10_000
"""Messages at which all entrants are compared."""


def growth(results: Results) -> str:
    """W1 and W2."""
    entrants = {name: one for name, one in results["entrants"].items() if "rows" in one}
    lengths = sorted({row["size"] for one in entrants.values() for row in one["rows"]})
    return "\n\n".join(
        [
            "### W1: a durable turn as the conversation grows",
            _turns(entrants, lengths),
            _beside_floor(results["floor"]),
            "### W2: a window of the last 20 messages, and of 4,000 tokens",
            _windows(entrants, lengths),
            *_failures(results["entrants"]),
        ]
    )


def _turns(entrants: Results, lengths: list[int]) -> str:
    head = [
        "p50 of a turn",
        *(f"{length:,}" for length in lengths),
        f"p99 at {MARK:,}",
        "of the yardstick",
        "flushes free",
        "of the yardstick",
        "bytes",
        "flushes",
    ]
    return table(head, [_turn_row(name, one, lengths) for name, one in entrants.items()])


def _turn_row(name: str, one: Results, lengths: list[int]) -> list[str]:
    rows = {row["size"]: row for row in one["rows"]}
    at = rows.get(MARK) or one["rows"][-1]
    flushes = one.get("flushes")
    return [
        name,
        *(span(rows[length]["turn"]["p50"]) if length in rows else "–" for length in lengths),
        span(at["turn"]["p99"]) or "–",
        times(at["turn"]["p50"] / at["yardstick"]["p50"]),
        *_free(one.get("free")),
        size(at["written"]),
        "–" if flushes is None else f"{flushes:.1f}".removesuffix(".0"),
    ]


def _free(row: Results | None) -> list[str]:
    """Return the cells of a turn with free flushes."""
    if not row:
        return ["–", "–"]
    return [span(row["turn"]["p50"]), times(row["turn"]["p50"] / row["yardstick"]["p50"])]


def _beside_floor(floor: Results) -> str:
    rows = [
        [
            f"`synchronous={name}`",
            span(one["floor"]),
            span(one["turn"]),
            times(one["ratio"]),
            "–".join(f"{bound:.2f}" for bound in one["middle_half"]),
        ]
        for name, one in floor.items()
    ]
    head = [
        "the same rows through `apsw`, alternating in one process",
        "floor",
        "ours",
        "ratio",
        "middle half",
    ]
    return table(head, rows)


def _windows(entrants: Results, lengths: list[int]) -> str:
    head = ["p50 of a window", *(f"{length:,}" for length in lengths), f"by tokens at {MARK:,}"]
    rows = []
    for name, one in entrants.items():
        found = {row["size"]: row for row in one["rows"]}
        at = found.get(MARK) or one["rows"][-1]
        fitting = span(at["fitting"]["p50"]) if "fitting" in at else "–"
        cells = [span(found[length]["window"]["p50"]) if length in found else "–" for length in lengths]
        rows.append([name, *cells, fitting])
    return table(head, rows)


def _failures(entrants: Results) -> list[str]:
    return [f"{name} did not finish: {one['error']}" for name, one in entrants.items() if "error" in one]


def together(results: Results) -> str:
    """W3."""
    entrants = {name: one for name, one in results["entrants"].items() if "ratio" in one}
    rows = [
        [name, f"{one['turns_a_second']:,.0f}", times(one["ratio"]), str(one["errors"])]
        for name, one in sorted(entrants.items(), key=lambda pair: -pair[1]["turns_a_second"])
    ]
    head = ["64 conversations at once", "turns a second", "of the yardstick alone", "refused"]
    return "\n\n".join(
        [
            "### W3: 64 conversations at once",
            table(head, rows),
            "![Turns a second with 64 conversations](bench-together.svg)",
            *_failures(results["entrants"]),
        ]
    )


_COUNTS = ("acknowledged", "lost", "doubled", "split", "errors")


def sharing(results: Results) -> str:
    """W4."""
    rows = [
        [name, way, *_counts(one[way])]
        for name, one in results["entrants"].items()
        for way in ("tasks", "processes")
    ]
    head = [
        "in one conversation",
        "16 tasks or 4 processes",
        "acknowledged",
        "lost",
        "duplicated",
        "split",
        "refused",
    ]
    return f"### W4: several writers in one conversation\n\n{table(head, rows)}"


def _counts(one: Results) -> list[str]:
    if "error" in one:
        return [one["error"], "", "", "", ""]
    return [f"{one[name]:,}" for name in _COUNTS]


def kills(results: Results) -> str:
    """W5."""
    rows = [
        [
            name,
            f"{one['acknowledged']:,}",
            str(one.get("lost", "–")),
            str(one.get("doubled", "–")),
            str(one.get("split", "–")),
            span(one["seconds"]) if one["reopens"] else f"no: {one['error']}",
        ]
        for name, one in results["entrants"].items()
    ]
    head = ["killed during writes", "acknowledged", "lost", "duplicated", "split", "reopened and read in"]
    return f"### W5: the process is killed\n\n{table(head, rows)}"


def cold(results: Results) -> str:
    """W6 and W7."""
    rows = [
        [
            name,
            f"{one['conversations']:,}",
            size(one["bytes"]),
            span(one["import"]),
            span(one["open"]),
            span(one.get("again")),
            span(one["first_window"]),
            size(one["resident"]),
        ]
        for name, one in results["entrants"].items()
        if "error" not in one
    ]
    head = [
        "new process",
        "conversations",
        "on disk",
        "import",
        "open",
        "open again",
        "first window",
        "resident",
    ]
    return "\n\n".join(
        [
            "### W6: cold open",
            table(head, rows),
            *_small(results),
            *_first(results),
            *_server(results),
            "### W7: search",
            *_search(results),
        ]
    )


def _small(results: Results) -> Iterator[str]:
    for name, one in results["entrants"].items():
        if "small" in one:
            small = one["small"]
            yield (
                f"{name} with 100 conversations: open {span(small['open'])}, first window "
                f"{span(small['first_window'])}, {size(small['resident'])}."
            )


def _first(results: Results) -> Iterator[str]:
    if one := results.get("first"):
        yield (
            f"Aforesaid in a new process on a new store, median: import {span(one['import'])}, open "
            f"{span(one['open'])}, first stored turn {span(one['turn'])}, first window {span(one['window'])}."
        )


def _server(results: Results) -> Iterator[str]:
    for state, one in results.get("server", {}).items():
        yield f"`aforesaid serve` on that store, {state}: {size(one)} resident."


def _search(results: Results) -> Iterator[str]:
    search = results["search"]
    if search:
        yield (
            f"Among {search['messages']:,} messages of one owner, by words: the first query of a process "
            f"{span(search['first'])}, then p50 {span(search['p50'])}, p95 {span(search['p95'])} over "
            f"{search['samples']} queries. None of the peers has a search."
        )


def windows(results: Results) -> str:
    """W8."""
    head = [
        "tool-heavy histories",
        "windows",
        "requests",
        "refused per 1,000",
        "last messages, unchanged",
    ]
    rows = [
        [
            state,
            f"{one['windows']:,}",
            f"{one['requests']:,}",
            f"{one['refused_per_1000']:.1f}",
            f"{one['last_messages_per_1000']:.0f}",
        ]
        for state, one in results["states"].items()
    ]
    taken = results["window"]
    time = (
        f"A window of 4,000 tokens out of {taken['messages']:.0f} messages takes {span(taken['p50'])} (p50)."
    )
    parts = ["### W8: windows over tool-heavy histories", table(head, rows), time, *_peers_windows(results)]
    return "\n\n".join(parts)


def _peers_windows(results: Results) -> Iterator[str]:
    if results.get("entrants"):
        rows = [
            [name, f"{one['windows']:,}", f"{one['refused_per_1000']:.0f}", span(one["p50"])]
            for name, one in results["entrants"].items()
            if "error" not in one
        ]
        yield (
            "Windows of at most eight messages, for peers that can cut one. A provider accepts sound "
            "histories as a whole. Flawed histories have missing, duplicate or unmatched results. For peers "
            "the time includes reading the log."
        )
        yield table(["windows of at most 8 messages", "windows", "refused per 1,000", "p50"], rows)


def serving(results: Results) -> str:
    """W9."""
    rows = [
        [f"{surface}, {name}", f"{one['a_second']:,.0f}", span(one["p50"]), span(one["p99"])]
        for surface, figures in results["surfaces"].items()
        for name, one in figures.items()
        if name != "error"
    ]
    if not rows:
        return ""
    head = ["over 64 connections", "a second", "p50", "p99"]
    return "\n\n".join(
        ["### W9: a turn through the server", table(head, rows), *_failures(results["surfaces"])]
    )


def costs(results: Results) -> str:
    """W10."""
    prices = results["prices"]
    stated = (
        f"Prices: {prices['input_tokens']:.2f} dollars for a million prompt tokens, "
        f"{prices['cached_tokens']:.2f} from the provider's cache, {prices['storage']:.2f} "
        f"for a gigabyte of disk a month. A message takes {size(results['bytes_a_message'])} on disk, "
        "including its share of the search index."
    )
    return "\n\n".join(
        ["### W10: cost of a year", stated, *(_scenario(one) for one in results["scenarios"].values())]
    )


def _scenario(one: Results) -> str:
    about = (
        f"{one['name']}: {one['conversations']:,} conversations of {one['turns']:,} turns ({one['shape']}), "
        f"{many(one['messages'])} messages, {size(one['stored_bytes'])} at the end of the year, "
        f"{one['storage']:,.2f} dollars of storage"
    )
    rows = [
        [name, many(prompt["tokens"]), f"{100 * prompt['cached'] / prompt['tokens']:.0f} %", _dollars(prompt)]
        for name, prompt in one["prompts"].items()
    ]
    return table([about, "prompt tokens", "from the cache", "dollars"], rows)


def _dollars(prompt: Results) -> str:
    return f"{prompt['dollars']:,.0f}"


def branches(results: Results) -> str:
    """W11."""
    rows = [
        [store, f"{one['append']:.2f} ×", f"{one['context']:.2f} ×"]
        for store, one in results["stores"].items()
    ]
    forks = f"a context through {results['forks']} forks, relative to one without"
    head = ["processor time", "a turn without branches, relative to one without the feature", forks]
    return "\n\n".join(["### W11: branches and participants", table(head, rows)])


def searching(results: Results) -> str:
    """W12."""
    return "\n\n".join(
        [
            "### W12: search by words and meaning",
            _asked(results["speed"]),
            _first_questions(results["first"]),
            _search_writes(results["writes"]),
            _agreement(results["agreement"]),
            _nothing(results["nothing"]),
        ]
    )


def _asked(found: list[Results]) -> str:
    head = [
        "one owner, five passages, warm",
        "least",
        "p50",
        "p95",
        "processor, p50",
        "p95",
        "floor: p50",
        "p95",
    ]
    rows = [
        [
            f"{one['messages']:,} messages",
            *(span(one[name]) for name in ("least", "p50", "p95", "processor", "processor_p95")),
            *(span(one["floor"][name]) for name in ("p50", "p95")),
        ]
        for one in found
    ]
    about = "The floor is a product of 20,000 vectors with one, taken before every question."
    return f"{table(head, rows)}\n\n{about}"


def _first_questions(found: list[Results]) -> str:
    head = ["the first question of a process, median", "the encoder is loaded", "it is not", "the second"]
    rows = [
        [
            f"{one['messages']:,} messages",
            span(one["loaded"]["first"]),
            span(one["asking"]["first"]),
            span(one["loaded"]["second"]),
        ]
        for one in found
    ]
    return table(head, rows)


def _search_writes(found: Results) -> str:
    head = ["a turn with its index, relative to one without", "p50", "mean", "processor"]
    rows = [
        [f"`synchronous={name}`", *(times(one[part]) for part in ("p50", "mean", "processor"))]
        for name, one in found.items()
    ]
    return table(head, rows)


def _agreement(found: list[Results]) -> str:
    head = ["relative to the store in memory", "", "the same first result", "the same ten in the same order"]
    rows = [
        [
            f"{many(one['messages'])} messages, {'words' if one['by_words'] else 'hybrid'}",
            store,
            *(f"{shares[name]:.1%}" for name in ("first", "all_in_order", "shared")),
        ]
        for one in found
        for store, shares in one["stores"].items()
    ]
    return table([*head, "of the ten in common"], rows)


def _nothing(found: list[Results]) -> str:
    head = [
        "short everyday histories",
        "other people's questions that find nothing",
        "recall@10 without a floor",
        "with the floor",
    ]
    rows = [
        [
            one["name"],
            f"{one['nothing']:.1%} of {one['foreign']}",
            f"{one['recall']:.3f}",
            f"{one['recall_above']:.3f}",
        ]
        for one in found
    ]
    return table(head, rows)


def servers(results: Results) -> str:
    """W13."""
    windows = [[name, span(one["p50"]), times(one["ratio"])] for name, one in results["layers"].items()]
    listed = [
        [
            f"{one['conversations']:,} conversations, {one['store']}",
            *(span(one[part]) for part in ("least", "p50", "p95", "processor", "first")),
            f"{one['records']:.0f}",
        ]
        for one in results["listed"]
    ]
    costs = results["processes"]
    return "\n\n".join(
        [
            "### W13: layers, the search of conversations, four processes",
            table(["a window after a turn, through", "p50", "relative to plain"], windows),
            table(
                ["`search_conversations`", "least", "p50", "p95", "processor", "the first", "records"], listed
            ),
            (
                "PostgreSQL, four processes with 16 conversations each, processor time of a turn, client and "
                f"server: {costs['ours']:.0f} µs; the bare driver with one transaction per turn "
                f"{costs['bare']:.0f} µs, {times(costs['ours'] / costs['bare'])}."
            ),
        ]
    )


SECTIONS: dict[str, Callable[[Results], str]] = {
    "growth": growth,
    "together": together,
    "sharing": sharing,
    "kills": kills,
    "cold": cold,
    "windows": windows,
    "serving": serving,
    "costs": costs,
    "branches": branches,
    "search": searching,
    "servers": servers,
}
