"""Search with the encoder of `aforesaid[encoder]`: the real model, in an environment that has it."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

import aforesaid
from aforesaid.model.messages import Message
from aforesaid.search.encoders import MiniLMEncoder, encoder_named
from aforesaid.search.vectors import blocks_of
from aforesaid.settings import ConversationConfig

TEXTS = (
    "I am allergic to nuts, please remember that for recipes.",
    "The plumber comes on Thursday to repair the kitchen tap.",
    "My sister Helen arrives on Saturday with the four o'clock train.",
    "Turn the heating in the bathroom to 22 degrees.",
    "Our cat Mimi had four kittens in May.",
    "The bins are collected on Tuesday.",
)


def opened(path: Path, encoder: str) -> Any:
    return aforesaid.open(
        f"sqlite:///{path}",
        config=ConversationConfig(encoder=encoder),
        retention=aforesaid.Retention(sweep_every=None),
    )


async def fill(memory: aforesaid.Memory) -> str:
    manager = memory.of("erin")
    conversation = await manager.get_or_create_conversation("s1")
    await manager.append(conversation.id, [Message(role="user", content=text) for text in TEXTS])
    return conversation.id


async def indexed(memory: aforesaid.Memory) -> None:
    indexer = memory.search_resources.indexer
    assert indexer is not None
    await indexer.wait_until_idle()


def test_similar_sentences_have_similar_vectors_of_length_one() -> None:
    encoder = MiniLMEncoder()
    texts = [
        "The dog is hungry",
        "A puppy wants its food",
        "The invoice was paid",
        "",
        "\0🎂",
        "long " * 2_000,
    ]
    rows = encoder.embed(texts)
    assert (rows.shape, rows.dtype) == ((len(texts), encoder.dimension), numpy.float32)
    assert numpy.allclose(numpy.linalg.norm(rows, axis=1), 1, atol=1e-3)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.3


def test_a_vector_does_not_depend_on_the_texts_encoded_with_it() -> None:
    encoder = MiniLMEncoder()
    texts = [*TEXTS, "short", "a much longer sentence " * 20, *(f"message {number}" for number in range(20))]
    alone = numpy.concatenate([encoder.embed([text]) for text in texts])
    assert numpy.allclose(alone, encoder.embed(texts), atol=1e-4)


async def test_paraphrases_are_found_and_strange_questions_find_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "one.db", "minilm") as memory:
        await fill(memory)
        await indexed(memory)
        erin = memory.of("erin")
        for question, right in (("what can I not eat?", 0), ("who fixes the sink?", 1)):
            found = await erin.search(question)
            assert found.by_meaning
            assert [one.text for one in found.passages[:1]] == [TEXTS[right]], question
        for question in (
            "Which football team won the cup?",
            "quantum physics",
            "How was the laser?",
        ):
            assert (await erin.search(question)).passages == (), question


async def test_another_encoder_makes_all_vectors_anew(tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    async with opened(path, "universal") as memory:
        conversation_id = await fill(memory)
        await indexed(memory)
    async with opened(path, "minilm") as memory:
        erin = memory.of("erin")
        await erin.search("kittens")
        await indexed(memory)
        found = await erin.search("baby cats")
        assert [one.text for one in found.passages[:1]] == [TEXTS[4]]
        for name in ("universal", "minilm"):
            encoder = encoder_named(name)
            assert encoder is not None
            blocks = await blocks_of(erin.store, conversation_id, encoder)
            assert [(block.model, block.covered) for block in blocks] == [(encoder.name, len(TEXTS))]
    shown = subprocess.run(
        [sys.executable, "-m", "aforesaid", "reindex", "--missing", "--json"],
        env={**os.environ, "AFORESAID_URL": f"sqlite:///{path}", "CONVERSATION_ENCODER": "minilm"},
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(shown.stdout)
    assert (result["model"], result["messages"], result["removed"]) == (MiniLMEncoder.name, 0, 1)


async def test_the_event_loop_does_not_encode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    embed = MiniLMEncoder.embed

    def noted(self: MiniLMEncoder, texts: Sequence[str]) -> Any:
        threads.add(threading.get_ident())
        return embed(self, texts)

    monkeypatch.setattr(MiniLMEncoder, "embed", noted)
    async with opened(tmp_path / "one.db", "minilm") as memory:
        await fill(memory)
        await indexed(memory)
        await asyncio.gather(*(memory.of("erin").search(text) for text in TEXTS))
    assert threads
    assert threading.get_ident() not in threads
