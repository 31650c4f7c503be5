"""Parts of every type that Gemini's SDK publishes are generated, kept, and valid in every dialect."""

from random import Random
from typing import Any

from benchmarks import sdk_samples

from aforesaid.dialects import read, write
from aforesaid.testing.histories import DIALECT_NAMES
from aforesaid.testing.validity import problems

PAIRED = ("functionCall", "functionResponse", "toolCall", "toolResponse")


def test_the_generator_has_every_field_of_a_part() -> None:
    known = sdk_samples.GEMINI_PARTS | sdk_samples.GEMINI_DESCRIPTIONS
    assert set(sdk_samples.gemini_parts()) - set(known) == set()


def test_random_parts_are_kept_and_make_valid_requests() -> None:
    random, published = Random(28), sdk_samples.gemini_parts()
    alone = sorted(set(sdk_samples.GEMINI_PARTS) & set(published) - set(PAIRED))
    describing = sorted(set(sdk_samples.GEMINI_DESCRIPTIONS) & set(published))
    for _ in range(500):
        names = [random.choice(alone), *(name for name in describing if random.random() < 0.1)]
        part = {name: sdk_samples.gemini_sample(random, published[name], name) for name in names}
        check(part)


def check(part: dict[str, Any]) -> None:
    contents: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"text": "And now?"}]},
        {"role": "model", "parts": [part, {"text": "words"}]},
        {"role": "user", "parts": [{"text": "And then?"}]},
    ]
    log = read(contents, dialect="gemini")
    assert [message.content for message in log] == [content["parts"] for content in contents]
    for dialect in DIALECT_NAMES:
        assert problems(write(log, dialect), dialect) == [], part
