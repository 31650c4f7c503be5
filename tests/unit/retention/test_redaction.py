"""Words that are taken out: before a message is stored, and afterwards."""

import base64
import re
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.dialects.tombstones import MARK, TAG
from aforesaid.errors import ConversationNotFound, InvalidMessage, MessageConflict, MessageNotFound
from aforesaid.model.messages import Message
from aforesaid.testing import FixedClock
from aforesaid.testing.validity import problems
from aforesaid.transfer import copy
from tests.servers.remote import open_at

CARD = re.compile(r"\d{4} \d{4}")


def mask(message: Message) -> Message | None:
    """Masks card numbers, drops what is tagged as private, replaces what a system says."""
    if "private" in message.tags:
        return None
    if message.role == "system":
        return Message(role="user", content="[set]", message_id="another")
    if isinstance(message.content, str):
        return message.with_(content=CARD.sub("****", message.content))
    return message


@pytest.fixture
async def masked(url: str, clock: FixedClock, tmp_path: Path) -> Any:
    async with open_at(
        url, clock=clock, sweep_every=None, redact=mask, images="blobs", blobs=tmp_path / "blobs"
    ) as memory:
        yield memory.of("erin")


async def test_the_hook_sees_every_message_before_it_is_stored(masked: aforesaid.ConversationManager) -> None:
    conversation = await masked.get_or_create_conversation("kitchen")
    async with masked.turn(conversation.id) as turn:
        turn.system("the key is 1234 5678", message_id="m1")
        turn.user("card 1234 5678 please", message_id="m2")
        turn.user("not for the log", tags=["private"])
        turn.assistant([{"type": "text", "text": "done"}])
    stored = await masked.messages(conversation.id)
    assert [(one.role, one.content) for one in stored] == [
        ("system", "[set]"),
        ("user", "card **** please"),
        ("assistant", [{"type": "text", "text": "done"}]),
    ]
    assert [one.message_id for one in stored[:2]] == ["m1", "m2"]
    again = await masked.add_message(conversation.id, "user", "card 1234 5678 please", message_id="m2")
    assert again.message_count == 3, "a retry is still known"
    await masked.add_message(conversation.id, "user", "secret", tags=["private"])
    chat = aforesaid.ChatHistory(masked)
    await chat.save_turn("+1", [{"role": "user", "content": "1234 5678"}])
    assert await chat.get_history("+1") == [{"role": "user", "content": "****"}]
    assert await masked.messages(conversation.id) == stored


@pytest.mark.parametrize(
    ("redact", "said"),
    [
        (lambda message: 1 / 0, "ZeroDivisionError"),
        (lambda message: "text", "gave a str"),
        (lambda message: message.to_dict(), "gave a dict"),
    ],
)
async def test_a_hook_that_fails_refuses_the_whole_turn(redact: Any, said: str) -> None:
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), redact=redact
    ) as memory:
        erin = memory.of("erin")
        conversation = await erin.get_or_create_conversation("kitchen")
        with pytest.raises(InvalidMessage, match=said) as caught:
            await erin.add_message(conversation.id, "user", "the secret")
        assert "secret" not in str(caught.value)
        assert "nothing was stored" in str(caught.value)
        assert await erin.messages(conversation.id) == []


async def test_a_redacted_message_leaves_a_tombstone(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    picture = base64.b64encode(b"\x89PNG the secret").decode()
    async with erin.turn(conversation.id) as turn:
        turn.user("the secret", message_id="m1")
        turn.assistant(
            [{"type": "tool_use", "id": "c", "name": "look", "input": {"q": "the secret"}}], message_id="m2"
        )
        turn.user(
            [
                {"type": "tool_result", "tool_use_id": "c", "content": "the secret"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}},
            ],
            message_id="m3",
        )
        turn.assistant("an answer", message_id="m4")
    before = await erin.store.page(conversation.id, limit=9)
    assert await erin.search_history("secret") != []
    for message_id in ("m1", "m2", "m3"):
        blank = await erin.redact(conversation.id, message_id)
        assert TAG in blank.tags
    after = await erin.store.page(conversation.id, limit=9)
    assert [(one.sequence, one.message.message_id, one.message.timestamp) for one in after] == [
        (one.sequence, one.message.message_id, one.message.timestamp) for one in before
    ]
    assert after[3] == before[3]
    assert "secret" not in str(after)
    assert await erin.search_history("secret") == []
    assert after[0].message.content == MARK
    for dialect in ("anthropic", "openai_chat", "openai_responses"):
        request = await erin.load_request(conversation.id, dialect)
        assert problems(request, dialect) == []
        assert "secret" not in str(request)
    assert erin.scope.blobs is not None
    assert await erin.scope.blobs.list(conversation.id) == []
    assert (await erin.redact(conversation.id, "m1", mark="[on request]")).content == "[on request]"
    with pytest.raises(MessageConflict):
        await erin.add_message(conversation.id, "user", "the secret", message_id="m1")


async def test_a_picture_that_another_message_shows_stays(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    data = base64.b64encode(b"\x89PNG x").decode()
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    for message_id in ("m1", "m2"):
        await erin.add_message(conversation.id, "user", [block], message_id=message_id)
    blobs = erin.scope.blobs
    assert blobs is not None
    await erin.redact(conversation.id, "m1")
    assert len(await blobs.list(conversation.id)) == 1
    await erin.redact(conversation.id, "m2")
    assert await blobs.list(conversation.id) == []


async def test_what_cannot_be_redacted_is_refused(memory: aforesaid.Memory) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    with pytest.raises(MessageNotFound):
        await erin.redact(conversation.id, "nothing")
    with pytest.raises(ConversationNotFound):
        await memory.of("bob").redact(conversation.id, "nothing")


async def test_a_copy_that_was_made_before_follows_a_redaction(
    memory: aforesaid.Memory, clock: FixedClock
) -> None:
    erin = memory.of("erin")
    conversation = await erin.get_or_create_conversation("kitchen")
    await erin.add_message(conversation.id, "user", "the secret", message_id="m1")
    async with aforesaid.open(
        "memory://", retention=aforesaid.Retention(sweep_every=None), clock=clock
    ) as target:
        await copy(memory.backend, target.backend)
        await erin.redact(conversation.id, "m1")
        report = await copy(memory.backend, target.backend)
        assert report.copied == 1
        assert [one.content for one in await target.of("erin").messages(conversation.id)] == [MARK]
