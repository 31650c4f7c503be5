"""A sliding window as state, tags as metadata, and eviction as a reducer, in real graphs."""

from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import START, StateGraph

import aforesaid
from aforesaid.adapters.langgraph import (
    AforesaidSaver,
    WindowState,
    messages_with,
    tagged,
    tags_of,
    windowed,
)
from aforesaid.windows import WindowPolicy


def graph_of(state: Any, answers: list[BaseMessage], saver: Any) -> Any:
    builder = StateGraph(state)
    # Copies: the reducer gives every message an id of its own.
    builder.add_node("model", lambda _: {"messages": [one.model_copy() for one in answers]})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver)


def config(thread: str, **metadata: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "metadata": metadata}


def contents(messages: list[Any]) -> list[str]:
    return [str(message.content) for message in messages]


async def test_tags_of_messages_come_back_after_a_restart_and_label_the_log() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        graph = graph_of(WindowState, [tagged(AIMessage(content="On."), "device")], AforesaidSaver(kim))
        asked = tagged(HumanMessage(content="Turn on the lights"), "home", "context:lights")
        await graph.ainvoke({"messages": [asked]}, config("t"))
        await graph.ainvoke({"messages": [HumanMessage(content="Who wrote Emma?")]}, config("t"))
        fresh = graph_of(WindowState, [], AforesaidSaver(kim))
        messages = (await fresh.aget_state(config("t"))).values["messages"]
        assert [sorted(tags_of(one)) for one in messages[:3]] == [
            ["context:lights", "home", "input"],
            ["device", "output"],
            ["input"],
        ]
        assert contents(messages_with(messages, {"home"})) == ["Turn on the lights"]
        assert contents(messages_with(messages, {"output", "home"})) == ["Turn on the lights", "On.", "On."]
        window = await kim.load_context("langgraph/t", policy=WindowPolicy(max_turns=9, tags=("home",)))
        assert contents(list(window.messages)) == ["Turn on the lights"]


async def test_tags_of_a_run_are_in_its_checkpoints_and_label_what_it_adds() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        graph = graph_of(WindowState, [AIMessage(content="Noted.")], AforesaidSaver(kim))
        for content, tags in (("rain?", ["weather"]), ("lights", ["home", "device"]), ("more", None)):
            metadata = {} if tags is None else {"tags": tags}
            await graph.ainvoke({"messages": [HumanMessage(content=content)]}, config("t", **metadata))

        async def states(**wanted: Any) -> list[Any]:
            found = graph.aget_state_history(config("t"), filter=wanted)
            return [state async for state in found]

        assert len(await states()) == 9
        assert [state.metadata["tags"] for state in await states(tags="home")] == [["home", "device"]] * 3
        assert len(await states(tags=["weather"])) == 3
        assert await states(tags="none") == []
        logged = await kim.messages("langgraph/t")
        assert [one.tags for one in logged] == [("weather",)] * 2 + [("home", "device")] * 2 + [()] * 2
        assert [one.content for one in await kim.messages("langgraph/t")][:2] == ["rain?", "Noted."]


async def test_a_new_process_with_other_tags_changes_no_stored_message() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        for tag in ("one", "two"):
            graph = graph_of(WindowState, [AIMessage(content=f"answer {tag}")], AforesaidSaver(kim))
            asked = {"messages": [HumanMessage(content=f"question {tag}")]}
            await graph.aupdate_state(config("t", tags=[tag]), asked, as_node="model")
        assert [one.tags for one in await kim.messages("langgraph/t")] == [("one",), ("two",)]


async def test_metadata_of_another_form_is_no_tag() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        graph = graph_of(
            WindowState,
            [AIMessage(content="a", response_metadata={"tags": {"provider": 1}})],
            AforesaidSaver(kim),
        )
        await graph.ainvoke({"messages": [HumanMessage(content="q")]}, config("t", tags={"other": 1}))
        await graph.ainvoke({"messages": [HumanMessage(content="r")]}, config("t", tags="alone"))
        assert [one.tags for one in await kim.messages("langgraph/t")] == [(), (), ("alone",), ("alone",)]
        with pytest.raises(aforesaid.errors.InvalidInput):
            tagged(HumanMessage(content="q"), 3)  # type: ignore[arg-type]


async def test_tagged_messages_of_other_programs_keep_their_tags_in_the_state() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        saver = AforesaidSaver(kim)
        graph = graph_of(WindowState, [], saver)
        await graph.ainvoke(
            {"messages": [tagged(HumanMessage(content="my PIN is 4711", id="h"), "secret")]}, config("t")
        )
        entry = (await kim.entries("langgraph/t"))[0]
        await kim.redact("langgraph/t", str(entry.message.message_id))
        (message,) = (await graph.aget_state(config("t"))).values["messages"]
    assert "4711" not in str(message)
    assert "secret" in tags_of(message)


async def test_eviction_removes_ephemeral_messages_first_and_important_ones_last() -> None:
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], windowed(max_messages=4)]

    given = [
        SystemMessage(content="system"),
        tagged(HumanMessage(content="important"), "important"),
        HumanMessage(content="plain 1"),
        HumanMessage(content="plain 2"),
        tagged(HumanMessage(content="ephemeral"), "ephemeral"),
    ]
    async with aforesaid.open("memory://") as memory:
        graph = graph_of(State, [], AforesaidSaver(memory.of("kim")))
        seen = []
        for message in (*given, HumanMessage(content="plain 3"), HumanMessage(content="plain 4")):
            await graph.ainvoke({"messages": [message]}, config("t"))
            seen.append(contents((await graph.aget_state(config("t"))).values["messages"]))
        logged = contents(await memory.of("kim").messages("langgraph/t"))
    # The newest message stays, whatever its tags.
    assert seen[4] == ["system", "important", "plain 2", "ephemeral"]
    assert seen[5] == ["system", "important", "plain 2", "plain 3"]
    assert seen[6] == ["system", "important", "plain 3", "plain 4"]
    assert logged == [*contents(given), "plain 3", "plain 4"]


def test_eviction_by_tokens_is_first_in_first_out_and_keeps_system_messages_on_request() -> None:
    words = " word" * 20
    messages = [
        SystemMessage(content="rule" + words),
        *(HumanMessage(content=f"{n}{words}") for n in range(6)),
    ]
    kept = contents(windowed(max_tokens=100)([], messages))
    assert kept == contents([messages[0], *messages[-len(kept) + 1 :]])
    assert 1 < len(kept) < 7
    without = contents(windowed(max_tokens=100, preserve_system=False)([], messages))
    assert without == contents(messages[-len(without) :])
    assert contents(windowed(max_tokens=1)([], messages)) == contents([messages[0], messages[-1]])


def test_a_tool_call_is_evicted_with_its_results_and_a_late_result_alone() -> None:
    calls: list[Any] = [{"name": "f", "args": {}, "id": name} for name in ("c1", "c2")]
    results = [ToolMessage(content=f"r{n}", tool_call_id=f"c{n}") for n in (1, 2)]
    messages = [HumanMessage(content="q"), AIMessage(content="", tool_calls=calls), *results]
    reduce = windowed(max_messages=3)
    assert contents(reduce([], messages)) == ["", "r1", "r2"]
    after = reduce(reduce([], messages), [HumanMessage(content="next")])
    assert contents(after) == ["next"]
    assert contents(reduce(after, [results[1]])) == ["next"]
    assert contents(
        messages_with([tagged(messages[0], "a"), *messages[1:3], tagged(results[1], "b")], {"b"})
    ) == [
        "",
        "r1",
        "r2",
    ]
