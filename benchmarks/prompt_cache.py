"""How much of each request a provider's prompt cache would have served.

    python benchmarks/prompt_cache.py [turns]

Replays long conversations of several shapes. Before every answer of the model the request is built
anew, as an agent does, and compared with the one before: what they share from the front on, message
by message, is what a prefix cache serves. Printed is that share of all prompt tokens, over the whole
conversation and from the first request on for which the log no longer fits the budget, for

    in blocks       windows as they are by default: cut to a low mark
    whole turns     the same rules, cut as little as possible each time (`retention_ratio` 1)
    FIFO            the newest messages that fit, oldest out first, one by one, behind the system prompt
    last 20         the newest 20 messages, as they stand, behind the system prompt
    no cut          the whole log

The shape "agent run" is that of recorded agents: questions with dozens of calls, whose results have up to
some thousand tokens. Its requests have the budget of a request without a model, and of one with a model.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, takewhile
from random import Random

from msgspec import Struct

from aforesaid.contracts import Entry
from aforesaid.dialects import read
from aforesaid.model.messages import Message
from aforesaid.testing.histories import entries_of
from aforesaid.tokens import budget_for
from aforesaid.windows import WindowPolicy, build_window

BUDGET = 4000
LAST = 20

Turn = list[Message]
Shape = Callable[[Random, int], Turn]
Scheme = Callable[[Sequence[Entry]], Sequence[Message]]


def tokens(message: Message) -> int:
    """A cost that needs no tokenizer: a quarter of the characters, and four for the frame."""
    return 4 + len(str(message.content) + str(message.extra)) // 4


def short_chat(random: Random, number: int) -> Turn:
    """A question and an answer, some sixty tokens together."""
    return [_user(random, 40, 120), _assistant(random, 60, 240)]


def tool_heavy(random: Random, number: int) -> Turn:
    """A question, one to five calls one after the other, and an answer."""
    turn = [_user(random, 40, 120)]
    for step in range(random.randint(1, 5)):
        turn += _call(random, f"call_{number}_{step}")
    return [*turn, _assistant(random, 60, 240)]


def mixed(random: Random, number: int) -> Turn:
    """Mostly chat, at times a tool loop, at times a long answer."""
    if random.random() < 0.3:
        return tool_heavy(random, number)
    if random.random() < 0.1:
        return [_user(random, 40, 120), _assistant(random, 1000, 2400)]
    return short_chat(random, number)


def agent_run(random: Random, number: int) -> Turn:
    """A task: dozens of calls one after the other, with results of very different length."""
    turn = [_user(random, 200, 1200)]
    for step in range(random.randint(8, 40)):
        longest = random.choice((400, 400, 1200, 4000))
        turn += _call(random, f"call_{number}_{step}", longest=longest)
    return [*turn, _assistant(random, 200, 900)]


LONG_SHAPES: dict[str, Shape] = {"agent run": agent_run}
SHAPES: dict[str, Shape] = {"short chat": short_chat, "tool-heavy": tool_heavy, "mixed": mixed}


class Served(Struct):
    """Prompt tokens of some requests, and how many of them a prefix cache would have served."""

    tokens: int = 0
    cached: int = 0
    requests: int = 0
    cuts: int = 0

    def add(self, window: Sequence[Message], before: Sequence[Message]) -> None:
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(before, window, strict=False)))
        self.cached += sum(tokens(message) for message, _ in shared)
        self.tokens += sum(tokens(message) for message in window)
        self.requests += 1
        self.cuts += len(shared) < len(before)

    @property
    def share(self) -> float:
        return 100 * self.cached / self.tokens


def replayed(shape: Shape, scheme: Scheme, turns: int) -> tuple[Served, Served]:
    """What is served over the whole conversation, and what once the window is full."""
    whole, full = Served(), Served()
    before: Sequence[Message] = ()
    for entries, is_full in requests_of(shape, turns):
        window = scheme(entries)
        whole.add(window, before)
        if is_full:
            full.add(window, before)
        before = window
    return whole, full


def by_policy(policy: WindowPolicy) -> Scheme:
    return lambda entries: build_window(entries, policy, cost=tokens).messages


def fifo(entries: Sequence[Entry]) -> Sequence[Message]:
    """The system prompt, and the newest messages that fit beside it."""
    opening, *others = [entry.message for entry in entries]
    room = BUDGET - tokens(opening)
    kept = takewhile(lambda spent: spent <= room, accumulate(tokens(message) for message in reversed(others)))
    return [opening, *others[len(others) - len(list(kept)) :]]


def last(entries: Sequence[Entry]) -> Sequence[Message]:
    """The system prompt, and the newest messages as they stand."""
    opening, *others = [entry.message for entry in entries]
    return [opening, *others[-LAST:]]


def no_cut(entries: Sequence[Entry]) -> Sequence[Message]:
    return [entry.message for entry in entries]


SCHEMES: dict[str, Scheme] = {
    "in blocks": by_policy(WindowPolicy(max_tokens=BUDGET)),
    "whole turns": by_policy(WindowPolicy(max_tokens=BUDGET, retention_ratio=1.0)),
    "FIFO": fifo,
    f"last {LAST}": last,
}

# The windows of requests by default: without a model, and with one of 200,000 tokens.
DEFAULTS: dict[str, Scheme] = {
    f"default {budget:,}": by_policy(WindowPolicy(max_tokens=budget, for_request=True))
    for budget in (budget_for(None), 8_000, budget_for("claude-sonnet-4-5"))
} | {f"last {LAST}": last, "no cut": no_cut}


def requests_of(shape: Shape, turns: int) -> Iterator[tuple[list[Entry], bool]]:
    """The newest entries of the log before each answer of the model, and whether all of it is too much."""
    random = Random(7)
    opening = Message(role="system", content="You are the voice of a house. " * 20)
    turns_of_log = [shape(random, number) for number in range(turns)]
    log = entries_of([opening, *(message for turn in turns_of_log for message in turn)])
    so_far = 0
    for end, entry in enumerate(log):
        if entry.message.role == "assistant":
            yield [log[0], *log[max(1, end - 4000) : end]], so_far > BUDGET
        so_far += tokens(entry.message)


def _user(random: Random, least: int, most: int) -> Message:
    return Message(role="user", content=_text(random, least, most))


def _assistant(random: Random, least: int, most: int) -> Message:
    return Message(role="assistant", content=_text(random, least, most))


def _call(random: Random, call_id: str, *, longest: int = 600) -> Turn:
    call = {"id": call_id, "name": "lookup", "arguments": {"query": _text(random, 10, 40)}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    found = {"role": "tool", "tool_call_id": call_id, "content": _text(random, 100, longest)}
    return read([asked, found], dialect="plain")


def _text(random: Random, least: int, most: int) -> str:
    return "".join(random.choices("abcdefghij ", k=random.randint(least, most)))


def main(turns: int) -> None:
    logging.getLogger("aforesaid.windows").setLevel(logging.ERROR)
    print(f"{turns} turns, budget {BUDGET} tokens; share of prompt tokens that a prefix cache serves")
    print(
        f"{'shape':12} {'scheme':14} {'requests':>9} {'cuts':>6} {'in all':>8} {'full':>9} {'once full':>10}"
    )
    for name, shape in SHAPES.items():
        for scheme_name, scheme in SCHEMES.items():
            _print(name, scheme_name, *replayed(shape, scheme, turns))
    for name, shape in LONG_SHAPES.items():
        for scheme_name, scheme in DEFAULTS.items():
            _print(name, scheme_name, *replayed(shape, scheme, max(4, turns // 10)))


def _print(name: str, scheme: str, whole: Served, full: Served) -> None:
    counts = f"{whole.requests:9} {whole.cuts:6} {whole.share:6.1f} % {full.requests:9}"
    print(f"{name:12} {scheme:14} {counts} {full.share:8.1f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
