"""The file of a chat memory becomes history: whole, once, with its time."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid import ChatHistory, Memory
from aforesaid.errors import InvalidInput, StoreUnavailable
from aforesaid.importers import FORMATS, ImportReport, Skipped, import_history
from aforesaid.testing import FixedClock

FORMAT = FORMATS["chat-memory"]
ERIN, SAM = "+14155551234", "+14155555678"
SEARCH: list[dict[str, Any]] = [
    {"role": "user", "content": "find me a chicken dinner"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_01", "name": "search", "input": {"q": "chicken"}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "Found 5 recipes"}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Here are 5 recipes."}]},
]
THANKS: list[dict[str, Any]] = [
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "content": [{"type": "text", "text": "Any time."}]},
]


def conversation(*turns: Any, last_active: Any = "2026-03-01T09:20:00") -> dict[str, Any]:
    return {"last_active": last_active, "turns": [{"messages": turn} for turn in turns]}


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(document, indent=2))
    return path


async def test_histories_go_on_where_the_file_ends(tmp_path: Path) -> None:
    file = written(tmp_path, {ERIN: conversation(SEARCH, THANKS), SAM: conversation(THANKS)})
    clock = FixedClock(datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
    async with aforesaid.open("memory://", clock=clock) as memory:
        manager = memory.of("household")
        report = await import_history(manager, FORMAT, file, timezone=UTC)
        assert report == ImportReport(conversations=2, messages=8)
        chat = ChatHistory(manager)
        assert await chat.get_history(ERIN) == SEARCH + THANKS
        assert await chat.get_history(SAM) == THANKS
        await chat.save_turn(ERIN, THANKS)
        assert await chat.get_history(ERIN) == SEARCH + THANKS + THANKS
        clock.advance(timedelta(minutes=21))
        assert await chat.get_history(SAM) == []


async def test_times_without_a_zone_are_local(memory: Memory, tmp_path: Path) -> None:
    file = written(tmp_path, {ERIN: conversation(THANKS)})
    manager = memory.of("household")
    await import_history(manager, FORMAT, file, timezone=timezone(timedelta(hours=-8)))
    record = await manager.get_conversation(f"chat:{ERIN}")
    assert record.last_message_at == datetime(2026, 3, 1, 17, 20, tzinfo=UTC)
    assert record.tags == (f"chat:{ERIN}",)


async def test_a_second_import_adds_only_what_is_new(memory: Memory, tmp_path: Path) -> None:
    manager = memory.of("household")
    file = written(tmp_path, {ERIN: conversation(THANKS, SEARCH, THANKS)})
    assert (await import_history(manager, FORMAT, file)).messages == 8
    assert await import_history(manager, FORMAT, file) == ImportReport(conversations=1, known=8)
    # Meanwhile the original dropped its oldest turn and got a new one.
    later = [{"role": "user", "content": "and dessert?"}, THANKS[1]]
    file = written(tmp_path, {ERIN: conversation(SEARCH, THANKS, later, last_active="2026-03-01T09:40:00")})
    assert await import_history(manager, FORMAT, file) == ImportReport(conversations=1, messages=2, known=6)
    stored = await manager.messages(f"chat:{ERIN}")
    assert [message.content for message in stored] == [
        message["content"] for message in THANKS + SEARCH + THANKS + later
    ]


async def test_a_dry_run_stores_nothing(memory: Memory, tmp_path: Path) -> None:
    file = written(tmp_path, {ERIN: conversation(THANKS)})
    seen: list[ImportReport] = []
    report = await import_history(memory.of("household"), FORMAT, file, dry_run=True, progress=seen.append)
    assert seen == [report] == [ImportReport(conversations=1, messages=2)]
    assert [owner async for owner in memory.owners()] == []


@pytest.mark.parametrize(
    ("damaged", "skipped"),
    [
        ({ERIN: "hello"}, Skipped(place=ERIN, reason="turns must be a list")),
        ({ERIN: {"last_active": "2026-03-01T09:20:00"}}, Skipped(place=ERIN, reason="turns must be a list")),
        (
            {ERIN: conversation(THANKS, last_active="yesterday")},
            Skipped(place=ERIN, reason="last_active must be ISO 8601; got 'yesterday'"),
        ),
        (
            {ERIN: {**conversation(), "turns": [{"messages": []}]}},
            Skipped(place=f"{ERIN}, turn 1", reason="messages must be a list that is not empty"),
        ),
    ],
)
async def test_a_damaged_part_is_reported_and_the_rest_imported(
    memory: Memory, tmp_path: Path, damaged: dict[str, Any], skipped: Skipped
) -> None:
    file = written(tmp_path, {**damaged, SAM: conversation(THANKS)})
    report = await import_history(memory.of("household"), FORMAT, file)
    assert report == ImportReport(conversations=1, messages=2, skipped=(skipped,))


async def test_a_message_that_is_not_one_skips_its_turn(memory: Memory, tmp_path: Path) -> None:
    file = written(tmp_path, {ERIN: conversation([{"role": "robot", "content": "hi"}], THANKS)})
    report = await import_history(memory.of("household"), FORMAT, file)
    assert (report.messages, [one.place for one in report.skipped]) == (2, [f"{ERIN}, turn 1"])


@pytest.mark.parametrize("text", ["not json", "[]", '"text"'])
async def test_another_file_is_refused(memory: Memory, tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(InvalidInput, match="is not"):
        await import_history(memory.of("household"), FORMAT, file)


async def test_a_missing_file_is_an_error_of_ours(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        await import_history(memory.of("household"), FORMAT, tmp_path / "none.json")


async def test_images_become_words(memory: Memory, tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    file = written(tmp_path, {ERIN: conversation([{"role": "user", "content": [image]}])})
    await import_history(memory.of("household"), FORMAT, file)
    (message,) = await memory.of("household").messages(f"chat:{ERIN}")
    assert message.content == [{"type": "text", "text": "[Image sent: photo]"}]
