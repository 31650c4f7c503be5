"""How much of each request a provider's prompt cache would have served.

    python benchmarks/prompt_cache.py [turns]

Replays long conversations of several shapes. Before every answer of the model the request is built
anew, as an agent does, and compared with the one before: what they share from the front on, message
by message, is what a prefix cache serves. Printed is that share of all prompt tokens: for windows
that are cut in blocks (the default), and for those cut as little as possible each time (FIFO).
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from random import Random

from recollect.contracts import Entry
from recollect.dialects import read
from recollect.messages import Message
from recollect.testing.histories import entries_of
from recollect.windows import WindowPolicy, build_window

BUDGET = 4000

Turn = list[Message]
Shape = Callable[[Random, int], Turn]


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


SHAPES: dict[str, Shape] = {"short chat": short_chat, "tool-heavy": tool_heavy, "mixed": mixed}


def shares(shape: Shape, policy: WindowPolicy, turns: int) -> tuple[float, int, int]:
    """The share of prompt tokens served, the number of cuts, and of requests."""
    served = asked = cuts = requests = 0
    before: Sequence[Message] = ()
    for entries in requests_of(shape, turns):
        window = build_window(entries, policy, cost=tokens).messages
        shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(before, window, strict=False)))
        served += sum(tokens(message) for message, _ in shared)
        asked += sum(tokens(message) for message in window)
        cuts += len(shared) < len(before)
        requests += 1
        before = window
    return 100 * served / asked, cuts, requests


def requests_of(shape: Shape, turns: int) -> Iterator[list[Entry]]:
    """The newest entries of the log before each answer of the model: more than a window can hold."""
    random = Random(7)
    opening = Message(role="system", content="You are the voice of a house. " * 20)
    turns_of_log = [shape(random, number) for number in range(turns)]
    log = entries_of([opening, *(message for turn in turns_of_log for message in turn)])
    for end, entry in enumerate(log):
        if entry.message.role == "assistant":
            yield [log[0], *log[max(1, end - 400) : end]]


def _user(random: Random, least: int, most: int) -> Message:
    return Message(role="user", content=_text(random, least, most))


def _assistant(random: Random, least: int, most: int) -> Message:
    return Message(role="assistant", content=_text(random, least, most))


def _call(random: Random, call_id: str) -> Turn:
    call = {"id": call_id, "name": "lookup", "arguments": {"query": _text(random, 10, 40)}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    found = {"role": "tool", "tool_call_id": call_id, "content": _text(random, 100, 600)}
    return read([asked, found], dialect="plain")


def _text(random: Random, least: int, most: int) -> str:
    return "".join(random.choices("abcdefghij ", k=random.randint(least, most)))


def main(turns: int) -> None:
    logging.getLogger("recollect.windows").setLevel(logging.ERROR)
    print(f"{turns} turns, budget {BUDGET} tokens; share of prompt tokens that a prefix cache serves")
    print(f"{'shape':12} {'requests':>9} {'in blocks':>10} {'cuts':>6} {'FIFO':>8} {'cuts':>6}")
    for name, shape in SHAPES.items():
        ours, cuts, requests = shares(shape, WindowPolicy(max_tokens=BUDGET), turns)
        fifo, more, _ = shares(shape, WindowPolicy(max_tokens=BUDGET, retention_ratio=1.0), turns)
        print(f"{name:12} {requests:9} {ours:8.1f} % {cuts:6} {fifo:6.1f} % {more:6}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
