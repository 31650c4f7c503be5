"""Blocks and items of every type that the SDKs publish come back from every store as they were."""

from random import Random

import msgspec
from benchmarks.sdk_samples import PIXEL
from benchmarks.trajectories import MAKERS

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


def as_bytes(message: Message) -> bytes:
    content = () if message.content is msgspec.UNSET else (message.content,)
    return msgspec.json.encode((message.role, message.dialect, content, message.extra))


def test_content_of_every_published_type_is_stored_byte_for_byte(target: Target) -> None:
    given = samples()

    async def scenario(erin: ConversationManager) -> None:
        conversation = await erin.get_or_create_conversation("s")
        await erin.append(conversation.id, given)
        stored = await erin.messages(conversation.id, limit=1000, offset=0)
        assert [as_bytes(message) for message in stored] == [as_bytes(message) for message in given]

    target.run(scenario)
