"""Pictures: left out of the history, or kept apart and put back exactly."""

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aforesaid.dialects import meaning_of, read, rehydrate, split_images, without_images
from aforesaid.dialects.images import PLACEHOLDER
from aforesaid.errors import NotFound
from aforesaid.model.messages import Message
from aforesaid.model.wire import decode_message, encode_message
from tests.examples import examples

PICTURE = b"\x89PNG\r\n\x1a\n picture"
DATA = base64.b64encode(PICTURE).decode()
URL = f"data:image/png;base64,{DATA}"
SHA256 = hashlib.sha256(PICTURE).hexdigest()

ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}, "x": 1}
CHAT = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}, "x": 1}
RESPONSES = {"type": "input_image", "image_url": URL, "detail": "auto", "x": 1}

CARRIERS: dict[str, dict[str, Any]] = {
    "anthropic": {"role": "user", "content": [ANTHROPIC, {"type": "text", "text": "what is it?"}]},
    "anthropic result": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a", "content": [ANTHROPIC]}],
    },
    "anthropic document": {
        "role": "user",
        "content": [{"type": "document", "source": {"type": "content", "content": [ANTHROPIC]}}],
    },
    "openai_chat": {"role": "user", "content": [CHAT]},
    "openai_responses": {"role": "user", "content": [RESPONSES]},
    "openai_responses result": {"type": "function_call_output", "call_id": "a", "output": [RESPONSES]},
    "openai_responses screenshot": {
        "type": "computer_call_output",
        "call_id": "a",
        "output": {"type": "computer_screenshot", "image_url": URL},
    },
    "openai_responses drawing": {
        "type": "image_generation_call",
        "id": "ig",
        "status": "completed",
        "result": DATA,
    },
    "mcp": {
        "role": "tool",
        "tool_call_id": "a",
        "content": [{"type": "image", "mimeType": "image/png", "data": DATA}],
    },
}


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest) -> Message:
    (message,) = read(CARRIERS[request.param])
    return message


def test_no_bytes_stay_in_a_message_without_images(carrier: Message) -> None:
    assert DATA in repr(carrier)
    assert DATA not in repr(without_images(carrier))


def test_a_placeholder_stands_in_the_place_of_the_picture() -> None:
    (message,) = read(CARRIERS["anthropic"])
    assert without_images(message).content == [
        {"type": "text", "text": "[Image sent: photo]"},
        {"type": "text", "text": "what is it?"},
    ]
    assert PLACEHOLDER == "[Image sent: photo]"


def test_the_placeholder_is_a_text_block_of_the_dialect() -> None:
    (message,) = read(CARRIERS["openai_responses result"])
    assert without_images(message, placeholder="[gone]").extra["output"] == [
        {"type": "input_text", "text": "[gone]"}
    ]
    (drawing,) = read(CARRIERS["openai_responses drawing"])
    assert meaning_of(without_images(drawing)).text == PLACEHOLDER


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
    ],
)
def test_pictures_at_an_address_stay(block: dict[str, Any]) -> None:
    (message,) = read({"role": "user", "content": [block]})
    assert without_images(message) is message
    assert split_images(message) == (message, {})


def test_splitting_takes_the_bytes_aside(carrier: Message) -> None:
    split, blobs = split_images(carrier)
    assert blobs == {SHA256: PICTURE}
    assert DATA not in repr(split)
    assert SHA256 in repr(split)


def test_a_reference_says_what_it_stands_for() -> None:
    (message,) = read(CARRIERS["openai_chat"])
    (reference,) = split_images(message)[0].content
    assert (reference["type"], reference["sha256"], reference["media_type"]) == (
        "aforesaid_blob",
        SHA256,
        "image/png",
    )


def test_rehydrating_is_the_exact_inverse_also_after_storage(carrier: Message) -> None:
    split, blobs = split_images(carrier)
    stored = decode_message(encode_message(split))
    assert rehydrate(stored, blobs) == carrier


@examples(100)
@given(pictures=st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=3))
def test_any_bytes_come_back(pictures: list[bytes]) -> None:
    blocks = [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(each).decode()},
        }
        for each in pictures
    ]
    (message,) = read({"role": "user", "content": blocks})
    split, blobs = split_images(message)
    assert set(blobs.values()) == set(pictures)
    assert rehydrate(split, blobs) == message


@examples(100)
@given(text=st.text(alphabet="AB=\n+/-_", max_size=12))
@example(text="AB==")  # stray bits: any encoder writes AA==
@example(text="AAAA\n")
def test_base64_of_any_spelling_comes_back(text: str) -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text}}
    (message,) = read({"role": "user", "content": [block]})
    split, blobs = split_images(message)
    assert rehydrate(split, blobs) == message


def test_a_picture_that_is_missing_is_said_to_be() -> None:
    (message,) = read(CARRIERS["anthropic"])
    split, _ = split_images(message)
    with pytest.raises(NotFound, match=SHA256):
        rehydrate(split, {})
