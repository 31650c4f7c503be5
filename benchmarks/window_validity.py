"""How many windows a provider would refuse: random histories, random policies, every dialect out.

    python benchmarks/window_validity.py [histories per state and dialect]

Prints, for each state that a log can be in and each dialect that it is written in, the requests per
1,000 that break a rule of the provider they are for. Beside it, for scale, what the last messages
of the same logs give when they are taken as they stand.

Every window is counted, in one column or the other: those that give requests, one in each dialect;
and those with nothing to send, because a filter by tag or agent let no message pass. To write
one of these as a request must raise `NothingToSend`, and no words that pass the filter may be in the
log; otherwise it counts as refused, in every dialect.

Beside that, windows that lost the question of a loop under way or interrupted, though no filter asked
for that; and windows over their budget that do not say so.
"""

import logging
import sys
from collections import Counter
from random import Random

from aforesaid.contracts import Entry
from aforesaid.dialects import meaning_of, write
from aforesaid.errors import NothingToSend
from aforesaid.model.contexts import Context
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, STATES, State, entries_of, random_history
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window, write_request

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
    """In how many dialects a provider would refuse these messages."""
    return sum(bool(problems(write(messages, out), out)) for out in DIALECT_NAMES)


def judged(context: Context, entries: list[Entry], policy: WindowPolicy) -> Counter[str]:
    """A window that gives requests, and how many are refused; or one that rightly gives none."""
    if context.report.nothing_to_send is None:
        return Counter({"requests": len(DIALECT_NAMES), "refused": refused(context.messages)})
    if any(is_heard(entry.message, policy) for entry in entries) or not raises(context):
        return Counter({"requests": len(DIALECT_NAMES), "refused": len(DIALECT_NAMES)})
    return Counter({"nothing to send": 1})


def lost_question(context: Context, entries: list[Entry], policy: WindowPolicy, state: State) -> bool:
    """Whether what the user asked last is not there, though the loop goes on."""
    if state == "at rest" or policy.tags or policy.agent_name is not None:
        return False
    asked = [text for entry in entries if (text := _asked(entry.message))]
    return asked[-1] not in [_asked(message) for message in context.messages]


def _asked(message: Message) -> str:
    return meaning_of(message).text if message.role == "user" else ""


def over_budget(context: Context, policy: WindowPolicy) -> bool:
    """Whether the window costs more than it may, and does not say so."""
    said = any("the budget is" in warning for warning in context.report.warnings)
    needed = policy.outside + sum(words(message) for message in context.messages)
    return policy.max_tokens is not None and needed > policy.max_tokens and not said


def raises(context: Context) -> bool:
    """Whether the window cannot be taken for a request, in any dialect."""
    for dialect in DIALECT_NAMES:
        try:
            write_request(context, dialect)
        except NothingToSend:
            continue
        return False
    return True


def is_heard(message: Message, policy: WindowPolicy) -> bool:
    """Whether the message has words of a user or assistant and passes the filters by itself."""
    if message.role not in ("user", "assistant") or not meaning_of(message).text:
        return False
    own = {*message.tags, "input" if message.role == "user" else "output"}
    of_agent = message.role == "user" or policy.agent_name in (None, message.agent_name)
    return of_agent and (not policy.tags or not own.isdisjoint(policy.tags))


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
        context = build_window(entries, policy, cost=words)
        found += judged(context, entries, policy)
        found["windows"] += 1
        found["lost"] += lost_question(context, entries, policy, state)
        found["over"] += over_budget(context, policy)
        found["as they stand"] += refused(last_messages(entries, policy))
    return found


def main(histories: int) -> None:
    logging.getLogger("aforesaid.windows").setLevel(logging.ERROR)
    columns = ("windows", "nothing to send", "requests", "question lost", "over budget")
    measures = ("refused per 1,000", "last messages")
    print(f"{'state':12} {'log in':17} " + " ".join(f"{column:>17}" for column in (*columns, *measures)))
    in_all: Counter[str] = Counter()
    for state in STATES:
        for source in SOURCES:
            found = count(state, source, histories)
            print(f"{state:12} {source:17} {line(found)}")
            in_all += found
    print(f"{'all':30} {line(in_all)}")


def line(found: Counter[str]) -> str:
    ours = 1000 * found["refused"] / found["requests"]
    plain = 1000 * found["as they stand"] / (found["windows"] * len(DIALECT_NAMES))
    counted = ("windows", "nothing to send", "requests", "lost", "over")
    counts = " ".join(f"{found[name]:17,}" for name in counted)
    return f"{counts} {ours:17.1f} {plain:17.1f}"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
