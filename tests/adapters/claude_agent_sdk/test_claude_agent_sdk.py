"""The Claude Agent SDK with Aforesaid as its session store."""

import uuid
from collections.abc import Callable
from typing import Any

import claude_agent_sdk
import pytest
from claude_agent_sdk.testing import run_session_store_conformance

import aforesaid
from aforesaid.adapters.claude_agent_sdk import AforesaidSessionStore
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import AdapterChecks, StateChecks, StatefulAdapter

SESSION = str(uuid.UUID(int=7))


def entry(role: str, content: Any, parent: str | None = None) -> dict[str, Any]:
    """Return an entry in the form of a transcript line."""
    return {
        "type": role,
        "uuid": str(uuid.uuid4()),
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": "2026-05-01T10:00:00.000Z",
        "message": {"role": role, "content": content},
    }


class ClaudeAdapter(StatefulAdapter):
    """The bundled program writes transcripts; these tests give the store the entries of a turn."""

    session = SESSION
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"claude-agent-sdk/project/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        store = AforesaidSessionStore(manager)
        key: Any = {"project_key": "project", "session_id": session}
        asked = entry("user", question)
        await store.append(key, [{"type": "mode", "mode": "default"}, asked])
        self.before_answer()
        await store.append(key, [entry("assistant", [{"type": "text", "text": answer}], asked["uuid"])])

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {"where": "shed"}}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": "a rake"}
        entries = [
            entry("user", "What is in the shed?"),
            entry("assistant", [call]),
            entry("user", [result]),
            entry("assistant", [{"type": "text", "text": "A rake."}]),
        ]
        await AforesaidSessionStore(manager).append(
            {"project_key": "project", "session_id": session}, entries
        )

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        found = await AforesaidSessionStore(manager).load({"project_key": "project", "session_id": session})
        said = [one["message"]["content"] for one in found or [] if "message" in one]
        return [one if isinstance(one, str) else str(one[0].get("text", "")) for one in said]

    async def keep_state(self, manager: ManagerProtocol, session: str, word: str) -> None:
        title = {"type": "custom-title", "customTitle": word, "sessionId": session}
        key: Any = {"project_key": "project", "session_id": session}
        await AforesaidSessionStore(manager).append(key, [title])

    async def state(self, manager: ManagerProtocol, session: str) -> str:
        return str(await AforesaidSessionStore(manager).list_session_summaries("project"))


class TestChecks(AdapterChecks, StateChecks):
    adapter = ClaudeAdapter()


async def test_a_redacted_entry_stays_in_the_chain_that_resuming_follows() -> None:
    adapter = ClaudeAdapter()
    async with aforesaid.open("memory://") as memory:
        kim, name = memory.of("kim"), adapter.conversation(SESSION)
        await adapter.call_tool(kim, SESSION)
        key: Any = {"project_key": "project", "session_id": SESSION}
        before = [one["uuid"] for one in await AforesaidSessionStore(kim).load(key)]
        for entry_ in (await kim.entries(name))[1:]:
            await kim.redact(name, str(entry_.message.message_id))
        loaded = await AforesaidSessionStore(kim).load(key)
    assert [one["uuid"] for one in loaded] == before
    assert [one["parentUuid"] for one in loaded] == [None, *before[:-1]]
    assert {one["sessionId"] for one in loaded} == {SESSION}
    assert "shed" not in str(loaded[1:])


async def test_the_published_contracts_hold() -> None:
    async with aforesaid.open("memory://") as memory:
        numbers = iter(range(1000))
        await run_session_store_conformance(lambda: AforesaidSessionStore(memory.of(f"kim{next(numbers)}")))


async def test_the_published_contracts_notice_a_store_that_drops_entries() -> None:
    class Dropping(AforesaidSessionStore):
        async def append(self, key: Any, entries: Any) -> None:
            await super().append(key, entries[:-1])

    async with aforesaid.open("memory://") as memory:
        with pytest.raises(AssertionError):
            await run_session_store_conformance(lambda: Dropping(memory.of("kim")))


async def test_the_sdk_reads_sessions_from_the_store() -> None:
    async with aforesaid.open("memory://") as memory:
        await ClaudeAdapter().say(memory.of("kim"), SESSION, "What is the capital of Peru?", "Lima.")
        store = AforesaidSessionStore(memory.of("kim"))
        key: Any = {"project_key": "project", "session_id": SESSION}
        summaries = await store.list_session_summaries("project")
        loaded = await store.load(key)
        folded = claude_agent_sdk.fold_session_summary(None, key, loaded)
    assert summaries[0]["data"] == folded["data"]
    assert [one["type"] for one in loaded] == ["mode", "user", "assistant"]
