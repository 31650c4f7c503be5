"""How many windows a provider would refuse: random histories, random policies, every dialect out.

    python benchmarks/window_validity.py [histories per state and dialect]

Prints, for each state that a log can be in and each dialect that it is written in, the requests per
1,000 that break a rule of the provider they are for. Beside it, for scale, what the last messages
of the same logs give when they are taken as they stand.
"""

import logging
import sys
from collections import Counter
from random import Random

from recollect.contracts import Entry
from recollect.dialects import write
from recollect.messages import Message
from recollect.testing.histories import DIALECT_NAMES, STATES, State, entries_of, random_history
from recollect.testing.validity import problems
from recollect.windows import WindowPolicy, build_window

SOURCES = (*DIALECT_NAMES, "mixed")


def random_policy(random: Random) -> WindowPolicy:
    """Any combination of limits, from far too small to far too large."""
    return WindowPolicy(
        max_turns=random.choice((None, None, 1, 2, 5)),
        max_messages=random.choice((None, None, 1, 3, 8, 20)),
        max_tokens=random.choice((None, 20, 100, 300, 1000)),
        prompt_tokens=random.choice((0, 10, 50)),
        preserve_system=random.choice((True, True, False)),
        agent_name=random.choice((None, None, "kitchen")),
        tags=random.choice(((), (), ("important",), ("output",), ("input", "system"))),
        retention_ratio=random.choice((0.5, 0.75, 1.0)),
        count_retention_ratio=random.choice((1.0, 1.0, 0.5)),
        look_back=random.choice((0, 3, 64)),
    )


def words(message: Message) -> int:
    """A cost that needs no tokenizer: a quarter of the characters, and four for the frame."""
    return 4 + len(str(message.content) + str(message.extra)) // 4


def refused(messages: tuple[Message, ...]) -> int:
    """In how many dialects a provider would refuse these messages.

    A filter that nobody's words pass leaves nothing to send: that is no request.
    """
    if all(message.role == "system" for message in messages):
        return 0
    return sum(bool(problems(write(messages, out), out)) for out in DIALECT_NAMES)


def last_messages(entries: list[Entry], policy: WindowPolicy) -> tuple[Message, ...]:
    """The most recent messages as they stand."""
    return tuple(entry.message for entry in entries[-(policy.max_messages or 8) :])


def count(state: State, source: str, histories: int) -> Counter[str]:
    random = Random(f"{state} {source}")
    found: Counter[str] = Counter()
    for _ in range(histories):
        turns = random.choice((0, 1, 3, 8, 20))
        entries = entries_of(random_history(random, dialect=source, state=state, turns=turns))
        policy = random_policy(random)
        found["ours"] += refused(build_window(entries, policy, cost=words).messages)
        found["as they stand"] += refused(last_messages(entries, policy))
        found["requests"] += len(DIALECT_NAMES)
    return found


def main(histories: int) -> None:
    logging.getLogger("recollect.windows").setLevel(logging.ERROR)
    print(f"{'state':12} {'log in':17} {'requests':>9} {'refused per 1,000':>18} {'last messages':>14}")
    for state in STATES:
        for source in SOURCES:
            found = count(state, source, histories)
            ours, plain = (1000 * found[name] / found["requests"] for name in ("ours", "as they stand"))
            print(f"{state:12} {source:17} {found['requests']:9} {ours:18.1f} {plain:14.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
