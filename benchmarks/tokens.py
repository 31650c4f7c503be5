"""How long it takes to count a message of 50 tokens, with each counter, beside tiktoken itself.

    python benchmarks/tokens.py

Every counter counts the same messages in the same run, the best of several rounds. The goal is
100 µs a message.
"""

import time
from collections.abc import Callable

from aforesaid.contracts import TokenCounter
from aforesaid.model.messages import Message
from aforesaid.tokens import Estimator, ExactCounter, RoughCounter, count
from aforesaid.tokens.exact import ENCODINGS, encoding_of

SENTENCE = (
    "Could you find me a chicken dinner for tonight that is ready in half an hour, uses the rice and the "
    "beans that we still have at home, is not too hot for the children, and tell me when I should start "
    "to cook?"
)
MESSAGES = [f"{number}. {SENTENCE}" for number in range(1000)]
ROUNDS = 7


def main() -> None:
    for name in ENCODINGS:
        seconds = timed(lambda name=name: ExactCounter(name).count_text("hello"))  # type: ignore[misc]
        print(f"{'loading ' + name:42}{seconds * 1000:8.0f} ms")
    mean = sum(map(ExactCounter("o200k_base").count_text, MESSAGES)) / len(MESSAGES)
    print(f"\nmessages of {mean:.0f} tokens (o200k_base), µs a message")
    for name in ENCODINGS:
        encoding = encoding_of(name)
        show(f"tiktoken {name}", lambda text, encoding=encoding: len(encoding.encode_ordinary(text)))  # type: ignore[misc]
    for counter in counters():
        show(f"count_text {counter.name}", counter.count_text)
        show(f"whole message {counter.name}", whole_message(counter))


def counters() -> list[TokenCounter]:
    return [*map(ExactCounter, ENCODINGS), Estimator(), Estimator(RoughCounter()), RoughCounter()]


def whole_message(counter: TokenCounter) -> Callable[[str], int]:
    values = {text: Message(role="user", content=text) for text in MESSAGES}
    return lambda text: count(counter, values[text])


def show(label: str, count: Callable[[str], int]) -> None:
    best = min(timed(lambda: [count(text) for text in MESSAGES]) for _ in range(ROUNDS))
    print(f"{label:42}{best / len(MESSAGES) * 1e6:8.1f} µs")


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
