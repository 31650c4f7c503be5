"""Blocks and items of every type that the SDKs publish are generated, and come back from every store as they
were.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from benchmarks import sdk_samples
from benchmarks.sdk_samples import PIXEL
from benchmarks.trajectories import MAKERS, random_trajectory

from aforesaid.dialects import read
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.messages import Message
from tests.builders import Target


def samples() -> list[Message]:
    """Return enough random segments of each kind that every type is among them."""
    random = Random(28)
    messages = [
        message
        for dialect, makers in MAKERS.items()
        for make in makers
        for _ in range(60)
        for message in read(make(random), dialect=dialect)
    ]
    # Images are stored apart, which tests of their own cover.
    return [
        message
        for message in messages
        if PIXEL not in str((message.content, message.extra))
        and message.extra.get("type") != "image_generation_call"
    ]


PUBLISHED: dict[str, Callable[[], dict[str, Any]]] = {
    "anthropic": sdk_samples.anthropic_blocks,
    "openai_chat": sdk_samples.chat_parts,
    "openai_responses": sdk_samples.response_items,
    "bedrock": sdk_samples.bedrock_blocks,
    "gemini": lambda: sdk_samples.GEMINI_PARTS | sdk_samples.GEMINI_DESCRIPTIONS,
}


def kinds_in(value: Any) -> set[str]:
    """Return the types of all blocks in a value, and the names of all fields."""
    if isinstance(value, list | tuple):
        return {kind for each in value for kind in kinds_in(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["type"]} if isinstance(value.get("type"), str) else set()
    return own | set(value) | {kind for each in value.values() for kind in kinds_in(each)}


@pytest.mark.parametrize("dialect", PUBLISHED)
def test_every_published_type_occurs_in_generated_logs(dialect: str) -> None:
    random = Random(28)
    logs = [random_trajectory(random, source=dialect, state="at rest", turns=3) for _ in range(400)]
    found = {kind for log in logs for one in log for kind in kinds_in([one.content, one.extra])}
    assert set(PUBLISHED[dialect]()) - found == set()


def as_bytes(message: Message) -> bytes:
    content = () if message.content is msgspec.UNSET else (message.content,)
    return msgspec.json.encode((message.role, message.dialect, content, message.extra))


def test_content_of_every_published_type_is_stored_byte_for_byte(target: Target) -> None:
    given = samples()

    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        starts = range(0, len(given), 1000)
        for start in starts:
            await erin.append(conversation.id, given[start : start + 1000])
        stored = [
            message
            for start in starts
            for message in await erin.messages(conversation.id, limit=1000, offset=start)
        ]
        assert [as_bytes(message) for message in stored] == [as_bytes(message) for message in given]

    target.run(scenario)
