"""Files of other programs: what they contain is imported once, and what is damaged is reported."""

import json
import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import InvalidInput
from aforesaid.importers import FORMATS, ImportReport, import_history


async def imported(manager: Any, name: str, file: Path, **more: Any) -> ImportReport:
    return await import_history(manager, FORMATS[name], file, timezone=UTC, **more)


def node(name: str, parent: str | None, role: str, text: str, when: float) -> dict[str, Any]:
    message = {
        "id": name,
        "author": {"role": role},
        "create_time": when,
        "content": {"content_type": "text", "parts": [text]},
    }
    return {"id": name, "parent": parent, "children": [], "message": message}


CHATGPT = [
    {
        "title": "Peru",
        "conversation_id": "c1",
        "create_time": 1_700_000_000.0,
        "current_node": "d",
        "mapping": {
            "root": {"id": "root", "parent": None, "message": None},
            "a": node("a", "root", "user", "What is the capital of Peru?", 1_700_000_001.5),
            "b": node("b", "a", "assistant", "Cusco.", 1_700_000_002),
            "d": node("d", "a", "assistant", "Lima.", 1_700_000_003),
        },
    },
    {
        "title": "Broken",
        "conversation_id": "c2",
        "mapping": {"x": {"message": {"author": 3}}},
        "current_node": "x",
    },
]


async def test_chatgpt_keeps_ids_times_and_the_active_path(tmp_path: Path) -> None:
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("user/conversations.json", json.dumps(CHATGPT))
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        dry = await imported(kim, "chatgpt", file, dry_run=True)
        assert (await kim.list()).conversations == ()
        report = await imported(kim, "chatgpt", file)
        # The other answer is a branch, in which the question is asked again.
        assert (dry.messages, dry.branches) == (report.messages, report.branches) == (4, 1)
        assert report.conversations == 1
        again = await imported(kim, "chatgpt", file)
        assert (again.messages, again.known, again.branches) == (0, 4, 1)
        messages = await kim.messages("chatgpt/c1")
        record = await kim.get_conversation("chatgpt/c1")
    assert [(one.message_id, one.role, one.content) for one in messages] == [
        ("a", "user", "What is the capital of Peru?"),
        ("d", "assistant", "Lima."),
    ]
    assert messages[0].timestamp == datetime.fromtimestamp(1_700_000_001.5, UTC)
    assert (record.subject, record.tags) == ("Peru", ("chatgpt",))
    reasons = {one.place: one.reason for one in report.skipped}
    assert reasons.keys() == {"Broken"}


# Edited questions, other answers, a branch of a branch, and another first question.
TREE = {
    "q1": (None, "user"),
    "a1": ("q1", "assistant"),
    "q2": ("a1", "user"),
    "a2": ("q2", "assistant"),
    "q2-edited": ("a1", "user"),
    "a2-edited": ("q2-edited", "assistant"),
    "q3-there": ("a2-edited", "user"),
    "q3-edited-there": ("a2-edited", "user"),
    "a2-again": ("q2", "assistant"),
    "q1-edited": (None, "user"),
    "a1-edited": ("q1-edited", "assistant"),
}
PATHS = {
    "a2": ["q1", "a1", "q2", "a2"],
    "q3-edited-there": ["q1", "a1", "q2-edited", "a2-edited", "q3-edited-there"],
    "q3-there": ["q1", "a1", "q2-edited", "a2-edited", "q3-there"],
    "a2-again": ["q1", "a1", "q2", "a2-again"],
    "a1-edited": ["q1-edited", "a1-edited"],
}


def tree_of(name: str) -> Any:
    """The tree in the form of a program, with its first path as the active one."""
    times = {one: 1_700_000_000 + at for at, one in enumerate(TREE)}
    if name == "chatgpt":
        nodes = {one: node(one, parent, role, one, times[one]) for one, (parent, role) in TREE.items()}
        return [{"title": "T", "conversation_id": "c", "current_node": "a2", "mapping": nodes}]
    if name == "claude":
        said = [
            {
                "uuid": one,
                "parent_message_uuid": parent or "00000000-0000-4000-8000-000000000000",
                "sender": "human" if role == "user" else "assistant",
                "text": one,
                "created_at": datetime.fromtimestamp(times[one], UTC).isoformat(),
            }
            for one, (parent, role) in TREE.items()
        ]
        return [{"uuid": "c", "name": "T", "current_leaf_message_uuid": "a2", "chat_messages": said}]
    if name == "open-webui":
        messages = {
            one: {"id": one, "parentId": parent, "role": role, "content": one, "timestamp": times[one]}
            for one, (parent, role) in TREE.items()
        }
        return [{"id": "c", "title": "T", "chat": {"history": {"messages": messages, "currentId": "a2"}}}]
    flat = [
        {
            "messageId": one,
            "parentMessageId": parent or "00000000-0000-0000-0000-000000000000",
            "text": one,
            "isCreatedByUser": role == "user",
            "createdAt": datetime.fromtimestamp(times[one] + 100 * (one == "a2"), UTC).isoformat(),
        }
        for one, (parent, role) in TREE.items()
    ]
    return {"conversationId": "c", "title": "T", "messages": flat}


@pytest.mark.parametrize("name", ["chatgpt", "claude", "open-webui", "librechat"])
async def test_every_path_of_a_tree_is_a_conversation_or_a_branch(name: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text(json.dumps(tree_of(name)))
    async with aforesaid.open(f"sqlite:///{tmp_path}/m.db") as memory:
        kim = memory.of("kim")
        report = await imported(kim, name, file)
        assert report.skipped == ()
        assert (report.conversations, report.branches) == (1, len(PATHS) - 1)
        tree = await kim.branches(f"{name}/c")
        found = {}
        for branch in tree:
            said = [one.message_id for one in await kim.messages(branch.conversation_id)]
            found[said[-1]] = said
        assert found == PATHS
        again = await imported(kim, name, file)
        assert (again.messages, again.branches) == (0, report.branches)
        assert len(await kim.branches(f"{name}/c")) == len(PATHS)


async def test_a_damaged_record_does_not_keep_the_others_out(tmp_path: Path) -> None:
    good = {"uuid": "u1", "name": "Good", "chat_messages": []}
    said = {"uuid": "m1", "sender": "human", "text": "hi", "created_at": "2026-05-01T10:00:00Z"}
    text = json.dumps([{**good, "chat_messages": [said]}])[:-1]
    damaged = ', {"uuid": "u2", "name": "Bad", "chat_messages": [{"uuid": }]}, '
    last = json.dumps({**good, "uuid": "u3", "chat_messages": [{**said, "uuid": "m3", "text": "bye"}]})
    file = tmp_path / "conversations.json"
    file.write_text(text + damaged + last + ', {"uuid": "u4", "na')
    async with aforesaid.open("memory://") as memory:
        report = await imported(memory.of("kim"), "claude", file)
        names = sorted(str(one.name) for one in (await memory.of("kim").list()).conversations)
    assert names == ["claude/u1", "claude/u3"]
    assert [one.place for one in report.skipped] == ["record 2", "record 4"]


async def test_open_webui_and_librechat_follow_the_active_path(tmp_path: Path) -> None:
    tree = {
        "1": {"id": "1", "parentId": None, "role": "user", "content": "hi", "timestamp": 1_700_000_000},
        "2": {"id": "2", "parentId": "1", "role": "assistant", "content": "no", "timestamp": 1_700_000_001},
        "3": {"id": "3", "parentId": "1", "role": "assistant", "content": "yes", "timestamp": 1_700_000_002},
    }
    webui = [{"id": "w", "title": "T", "chat": {"history": {"messages": tree, "currentId": "3"}}}]
    child = {"messageId": "b", "parentMessageId": "a", "text": "hello", "createdAt": "2026-05-01T10:00:01Z"}
    asked = {
        "messageId": "a",
        "parentMessageId": None,
        "text": "hi",
        "isCreatedByUser": True,
        "children": [child],
    }
    libre = {
        "conversationId": "l",
        "title": "L",
        "messages": [{**asked, "createdAt": "2026-05-01T10:00:00Z"}],
    }
    (tmp_path / "webui.json").write_text(json.dumps(webui))
    (tmp_path / "libre.json").write_text(json.dumps(libre))
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        report = await imported(kim, "open-webui", tmp_path / "webui.json")
        await imported(kim, "librechat", tmp_path / "libre.json")
        assert [one.content for one in await kim.messages("open-webui/w")] == ["hi", "yes"]
        assert [one.content for one in await kim.messages("librechat/l")] == ["hi", "hello"]
    assert (report.skipped, report.branches) == ((), 1)


async def test_openai_sessions_and_mem0_from_their_tables(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with sqlite3.connect(file) as db:
        db.execute(
            "CREATE TABLE agent_messages "
            "(id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT)"
        )
        rows = [
            ("s", json.dumps({"role": "user", "content": "hi"}), "2026-05-01 10:00:00"),
            ("s", "{damaged", "2026-05-01 10:00:01"),
            (
                "s",
                json.dumps({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}),
                "2026-05-01 10:00:02",
            ),
        ]
        db.executemany(
            "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows
        )
        db.execute(
            "CREATE TABLE history (id TEXT, memory_id TEXT, old_memory TEXT, new_memory TEXT, "
            "event TEXT, created_at TEXT, updated_at TEXT)"
        )
        db.execute(
            "INSERT INTO history VALUES ('h1', 'm', NULL, 'likes tea', 'ADD', '2026-05-01T10:00:00', NULL)"
        )
        db.execute(
            "INSERT INTO history VALUES ('h2', 'm', 'likes tea', NULL, 'DELETE', '2026-05-02T10:00:00', NULL)"
        )
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        report = await imported(kim, "openai-session", file)
        assert len(await kim.messages("openai-agents/s")) == 2
        assert [one.place for one in report.skipped] == ["s, row 2"]
        await imported(kim, "mem0", file)
        told = [one.content for one in await kim.messages("mem0/m")]
    assert told == ["likes tea", "forgotten: likes tea"]


async def test_a_file_that_mem0_wrote(tmp_path: Path) -> None:
    """The dump is of a file of mem0 2.2.1: two memories, one changed and one deleted, and a session."""
    file = tmp_path / "history.db"
    with sqlite3.connect(file) as db:
        db.executescript((Path(__file__).parent / "data" / "mem0-2.2.1.sql").read_text())
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        dry = await imported(kim, "mem0", file, dry_run=True)
        report = await imported(kim, "mem0", file)
        again = await imported(kim, "mem0", file)
        said = {
            one.name: [(each.role, each.content) for each in await kim.messages(one.id)]
            for one in (await kim.list()).conversations
        }
    assert sorted(said.values()) == [
        [("user", "I like green tea"), ("assistant", "Noted.")],
        [("user", "I like green tea"), ("user", "I like black tea")],
        [("user", "I live in Lima"), ("user", "forgotten: I live in Lima")],
    ]
    assert "mem0/session/user_id=kim" in said
    assert (dry.messages, report.messages, again.messages, report.skipped) == (6, 6, 0, ())


async def test_strands_folders(tmp_path: Path) -> None:
    folder = tmp_path / "session_s" / "agents" / "agent_a" / "messages"
    folder.mkdir(parents=True)
    for number, block in enumerate(
        [{"text": "hi"}, {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}, {"text": "bye"}]
    ):
        role = "user" if number == 0 else "assistant"
        document = {"message_id": number, "message": {"role": role, "content": [block]}}
        (folder / f"message_{number}.json").write_text(json.dumps(document))
    (folder / "message_3.json").write_text("{")
    async with aforesaid.open("memory://") as memory:
        report = await imported(memory.of("kim"), "strands", tmp_path)
        messages = await memory.of("kim").messages("strands/s/a")
    assert [one.message_id for one in messages] == ["st-0", "st-1", "st-2"]
    assert "message_3" in report.skipped[0].place


@pytest.mark.parametrize("name", sorted(FORMATS))
async def test_a_file_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("nothing of the kind")
    async with aforesaid.open("memory://") as memory:
        with pytest.raises(InvalidInput):
            await imported(memory.of("kim"), name, file)
        assert (await memory.of("kim").list()).conversations == ()
