"""LangGraph with Aforesaid as its checkpointer and store."""

import inspect
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import aforesaid
from aforesaid.adapters.langgraph import AforesaidSaver, AforesaidStore, open_manager, windowed
from aforesaid.importers import FORMATS, import_history
from aforesaid.memory.interface import ManagerProtocol
from tests.adapters.checks import AdapterChecks, StateChecks, StatefulAdapter


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def graph_of(answers: Callable[[list[AnyMessage]], list[BaseMessage]], saver: Any, **more: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("model", lambda state: {"messages": answers(state["messages"])})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=saver, **more)


def config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


class LangGraphAdapter(StatefulAdapter):
    before_answer: Callable[[], Any] = staticmethod(lambda: None)

    def conversation(self, session: str) -> str:
        return f"langgraph/{session}"

    async def say(self, manager: ManagerProtocol, session: str, question: str, answer: str) -> None:
        def answers(_: list[AnyMessage]) -> list[BaseMessage]:
            self.before_answer()
            return [AIMessage(content=answer)]

        graph = graph_of(answers, AforesaidSaver(manager))
        await graph.ainvoke({"messages": [HumanMessage(content=question)]}, config(session))

    async def call_tool(self, manager: ManagerProtocol, session: str) -> None:
        def answers(_: list[AnyMessage]) -> list[BaseMessage]:
            call = {"name": "look", "args": {"where": "shed"}, "id": "call-1"}
            return [
                AIMessage(content="", tool_calls=[call]),
                ToolMessage(content="a rake", tool_call_id="call-1"),
                AIMessage(content="There is a rake."),
            ]

        graph = graph_of(answers, AforesaidSaver(manager))
        await graph.ainvoke({"messages": [HumanMessage(content="What is in the shed?")]}, config(session))

    async def history(self, manager: ManagerProtocol, session: str) -> list[str]:
        found = await AforesaidSaver(manager).aget_tuple(config(session))
        values = {} if found is None else found.checkpoint["channel_values"]
        return [str(message.text) for message in values.get("messages", [])]

    async def keep_state(self, manager: ManagerProtocol, session: str, word: str) -> None:
        class Notes(State):
            short: str
            long: str

        builder = StateGraph(Notes)
        builder.add_node("note", lambda _: {"short": word, "long": word * 200})
        builder.add_edge(START, "note")
        graph = builder.compile(checkpointer=AforesaidSaver(manager))
        await graph.ainvoke({"messages": []}, config(session))

    async def state(self, manager: ManagerProtocol, session: str) -> str:
        found = await AforesaidSaver(manager).aget_tuple(config(session))
        values = {} if found is None else found.checkpoint["channel_values"]
        return f"{values.get('short')} {values.get('long')}"


class TestChecks(AdapterChecks, StateChecks):
    adapter = LangGraphAdapter()


@pytest.mark.parametrize("store", ["memory", "sqlite", "file"])
async def test_the_published_suite_passes_completely(store: str, tmp_path: Path) -> None:
    urls = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path / 'm.db'}",
        "file": f"file:///{tmp_path / 'm.json'}",
    }

    @checkpointer_test(name="aforesaid")
    async def ours() -> AsyncIterator[Any]:
        async with aforesaid.open(urls[store]) as memory:
            yield AforesaidSaver(memory.of("kim"))

    report = await validate(ours)
    assert all(one.detected and one.passed for one in report.results.values())
    assert len(report.results) == 8
    assert sum(one.tests_passed for one in report.results.values()) == 81


async def test_the_suite_notices_a_saver_that_drops_writes() -> None:
    class Dropping(AforesaidSaver):
        async def aput_writes(self, *_: Any, **__: Any) -> None:
            pass

    @checkpointer_test(name="broken")
    async def broken() -> AsyncIterator[Any]:
        async with aforesaid.open("memory://") as memory:
            yield Dropping(memory.of("kim"))

    report = await validate(broken)
    assert not all(one.passed for one in report.results.values())


async def test_messages_come_back_exactly() -> None:
    messages = [
        HumanMessage(content=[{"type": "text", "text": "hi"}, {"type": "image", "url": "x:y"}]),
        AIMessage(content="", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}], usage_metadata=None),
        ToolMessage(content="done", tool_call_id="c", artifact={"rows": [1, 2]}, status="error"),
        AIMessage(content="ok", additional_kwargs={"x": 1}, response_metadata={"model": "m"}, name="bot"),
    ]
    async with aforesaid.open("memory://") as memory:
        saver = AforesaidSaver(memory.of("kim"))
        await graph_of(lambda _: messages[1:], saver).ainvoke({"messages": messages[:1]}, config("t"))
        fresh = AforesaidSaver(memory.of("kim"))
        found = await fresh.aget_tuple(config("t"))
    assert found is not None
    restored = found.checkpoint["channel_values"]["messages"]
    assert [type(one) for one in restored] == [type(one) for one in messages]
    assert [one.model_dump(exclude={"id"}) for one in restored] == [
        one.model_dump(exclude={"id"}) for one in messages
    ]


async def test_removed_and_changed_messages_are_as_in_the_reference() -> None:
    steps: list[Any] = [
        [HumanMessage(content="a", id="1"), AIMessage(content="b", id="2")],
        [HumanMessage(content="c", id="3")],
        [AIMessage(content="B", id="2")],
        [RemoveMessage(id="1")],
        [HumanMessage(content="a", id="1")],
    ]
    async with aforesaid.open("memory://") as memory:
        ours, reference = AforesaidSaver(memory.of("kim")), InMemorySaver()
        for step in steps:
            states = []
            for saver in (ours, reference):
                graph = graph_of(lambda _: [], saver)
                await graph.ainvoke({"messages": step}, config("t"))
                fresh = AforesaidSaver(memory.of("kim")) if saver is ours else saver
                state = await graph_of(lambda _: [], fresh).aget_state(config("t"))
                states.append([(one.id, one.content) for one in state.values["messages"]])
            assert states[0] == states[1]


async def test_time_travel_and_forks_keep_every_branch() -> None:
    async with aforesaid.open("memory://") as memory:
        saver = AforesaidSaver(memory.of("kim"))
        graph = graph_of(lambda said: [AIMessage(content=f"to {said[-1].content}")], saver)
        await graph.ainvoke({"messages": [HumanMessage(content="one")]}, config("t"))
        first = (await graph.aget_state(config("t"))).config
        await graph.ainvoke({"messages": [HumanMessage(content="two")]}, config("t"))
        await graph.ainvoke({"messages": [HumanMessage(content="three")]}, first)
        state = await graph.aget_state(config("t"))
        logged = [one.content for one in await memory.of("kim").messages("langgraph/t")]
    assert [one.content for one in state.values["messages"]] == ["one", "to one", "three", "to three"]
    assert logged == ["one", "to one", "two", "to two", "three", "to three"]


async def test_a_redacted_message_leaves_the_state_of_a_running_process() -> None:
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        saver = AforesaidSaver(kim)
        graph = graph_of(lambda _: [AIMessage(content="noted")], saver)
        await graph.ainvoke({"messages": [HumanMessage(content="my PIN is 4711")]}, config("t"))
        entry = (await kim.entries("langgraph/t"))[0]
        await kim.redact("langgraph/t", str(entry.message.message_id))
        found = await saver.aget_tuple(config("t"))
        assert found is not None
        assert "4711" not in str(found)
        result = await graph.ainvoke({"messages": [HumanMessage(content="again")]}, config("t"))
    assert [type(one).__name__ for one in result["messages"]] == ["HumanMessage", "AIMessage"] * 2
    assert "4711" not in str(result)


async def test_redacted_calls_and_results_still_belong_together() -> None:
    adapter = LangGraphAdapter()
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        await adapter.call_tool(kim, "t")
        for entry in await kim.entries("langgraph/t"):
            await kim.redact("langgraph/t", str(entry.message.message_id))
        found = await AforesaidSaver(kim).aget_tuple(config("t"))
    assert found is not None
    _, called, result, _ = found.checkpoint["channel_values"]["messages"]
    assert [call["id"] for call in called.tool_calls] == [result.tool_call_id] == ["call-1"]
    assert "shed" not in str(found)


def test_the_synchronous_face(tmp_path: Path) -> None:
    manager = open_manager(f"sqlite:///{tmp_path / 'memory.db'}", owner="kim")
    graph = graph_of(lambda _: [AIMessage(content="Lima")], AforesaidSaver(manager))
    graph.invoke({"messages": [HumanMessage(content="Peru?")]}, config("t"))
    assert [one.content for one in graph.get_state(config("t")).values["messages"]] == ["Peru?", "Lima"]
    assert len(list(graph.get_state_history(config("t")))) == 3
    store = AforesaidStore(manager)
    store.put(("people", "kim"), "tea", {"likes": "green tea"})
    item = store.get(("people", "kim"), "tea")
    assert item is not None
    assert item.value == {"likes": "green tea"}


async def test_interrupted_graphs_resume() -> None:
    from langgraph.types import Command, interrupt

    def ask(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(content=f"you said {interrupt('sure?')}")]}

    async with aforesaid.open("memory://") as memory:
        builder = StateGraph(State)
        builder.add_node("ask", ask)
        builder.add_edge(START, "ask")
        first = builder.compile(checkpointer=AforesaidSaver(memory.of("kim")))
        stopped = await first.ainvoke({"messages": [HumanMessage(content="delete it")]}, config("t"))
        assert "__interrupt__" in stopped
        second = builder.compile(checkpointer=AforesaidSaver(memory.of("kim")))
        resumed = await second.ainvoke(Command(resume="yes"), config("t"))
    assert resumed["messages"][-1].content == "you said yes"


async def test_a_window_as_state_is_valid_and_the_log_keeps_everything() -> None:
    class Windowed(TypedDict):
        messages: Annotated[list[AnyMessage], windowed(max_messages=6)]

    def answer(state: Windowed) -> dict[str, Any]:
        call = {"name": "f", "args": {}, "id": f"c{len(state['messages'])}"}
        return {
            "messages": [
                AIMessage(content="", tool_calls=[call]),
                ToolMessage(content="r", tool_call_id=call["id"]),
                AIMessage(content="done"),
            ]
        }

    async with aforesaid.open("memory://") as memory:
        builder = StateGraph(Windowed)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph = builder.compile(checkpointer=AforesaidSaver(memory.of("kim")))
        for number in range(5):
            result = await graph.ainvoke({"messages": [HumanMessage(content=f"q{number}")]}, config("t"))
            assert len(result["messages"]) <= 6
            assert not isinstance(result["messages"][0], ToolMessage)
        logged = await memory.of("kim").messages("langgraph/t")
    assert [one.content for one in logged if one.role == "user"] == [f"q{number}" for number in range(5)]
    with pytest.raises(aforesaid.errors.InvalidInput):
        windowed()


async def test_the_store_is_as_the_reference() -> None:
    async with aforesaid.open("memory://") as memory:
        ours, reference = AforesaidStore(memory.of("kim")), InMemoryStore()
        for store in (ours, reference):
            for number in range(12):
                await store.aput(
                    ("docs", str(number % 3)), f"k{number}", {"n": number, "tag": {"odd": number % 2}}
                )
            await store.adelete(("docs", "0"), "k3")
            await store.aput(("docs", "1"), "k1", {"n": 100})
        calls: list[Callable[[Any], Any]] = [
            lambda store: store.aget(("docs", "1"), "k1"),
            lambda store: store.aget(("docs", "1"), "none"),
            lambda store: store.asearch(("docs",), limit=50),
            lambda store: store.asearch(("docs",), filter={"n": {"$gte": 5}}, limit=50),
            lambda store: store.asearch(("docs",), filter={"tag": {"odd": 1}}, limit=50),
            lambda store: store.asearch(("docs", "2")),
            lambda store: store.alist_namespaces(prefix=("docs",)),
            lambda store: store.alist_namespaces(max_depth=1),
            lambda store: store.alist_namespaces(suffix=("2",)),
        ]
        for call in calls:
            assert _plain(await call(ours)) == _plain(await call(reference))


@pytest.mark.parametrize("seed", range(5))
async def test_random_operations_give_what_the_reference_store_gives(seed: int) -> None:
    choose = random.Random(seed)
    async with aforesaid.open("memory://") as memory:
        stores: list[BaseStore] = [InMemoryStore(), AforesaidStore(memory.of("kim"))]
        for step in range(60):
            act = _operation(choose, step)
            outcomes = [await _outcome(act, store) for store in stores]
            assert outcomes[0] == outcomes[1], (seed, step)


def _operation(choose: random.Random, step: int) -> Callable[[BaseStore], Any]:
    namespace = tuple(choose.choices(["a", "b", "ab", "docs"], k=choose.randint(1, 3)))
    key, number = choose.choice("xyz"), choose.randint(0, 3)
    value = {"n": number, "tag": choose.choice(["red", "blue", None]), "nested": {"odd": step % 2}}
    filters: list[Any] = [
        None,
        {"tag": "red"},
        {"n": {"$gt": number}},
        {"n": {"$lte": number, "$ne": 0}},
        {"nested": {"odd": 1}},
    ]
    wanted = choose.choice(filters)
    operations: list[Callable[[BaseStore], Any]] = [
        lambda store: store.aput(namespace, key, value),
        lambda store: store.aput(namespace, key, value, index=False),
        lambda store: store.adelete(namespace, key),
        lambda store: store.aget(namespace, key),
        lambda store: store.asearch(namespace[:1], filter=wanted, limit=100),
        lambda store: _namespaces(store, prefix=(namespace[0], "*")),
        lambda store: _namespaces(store, prefix=namespace[:1], max_depth=number + 1),
        lambda store: _namespaces(store, suffix=namespace[-1:]),
        lambda store: store.abatch(
            [PutOp(namespace, key, value), GetOp(namespace, key), SearchOp(namespace, limit=100)]
        ),
        lambda store: store.aput((*namespace, ""), key, value),
        lambda store: store.aput(("langgraph", *namespace), key, value),
    ]
    return choose.choice([*operations[:1] * 6, *operations])


async def _namespaces(store: BaseStore, **wanted: Any) -> list[tuple[str, ...]]:
    """Return namespaces that have items: the reference also lists those that lost theirs."""
    items = await store.asearch((), limit=1000)
    living = {item.namespace[: wanted.get("max_depth")] for item in items}
    return [one for one in await store.alist_namespaces(limit=100, **wanted) if one in living]


async def _outcome(act: Callable[[BaseStore], Any], store: BaseStore) -> Any:
    try:
        return _plain(await act(store))
    except ValueError as error:  # compared with the reference
        return type(error).__name__


def test_the_interfaces_are_complete() -> None:
    for ours, base in ((AforesaidSaver, BaseCheckpointSaver), (AforesaidStore, BaseStore)):
        assert not getattr(ours, "__abstractmethods__", ())
        for name, method in inspect.getmembers(base, inspect.isfunction):
            own = getattr(ours, name)
            if own is not method and name != "__init__":
                assert list(inspect.signature(own).parameters) == list(inspect.signature(method).parameters)
    refused = {
        name
        for name, method in inspect.getmembers(BaseCheckpointSaver, inspect.isfunction)
        if "NotImplementedError" in inspect.getsource(method)
    }
    assert {
        name for name in refused if getattr(AforesaidSaver, name) is getattr(BaseCheckpointSaver, name)
    } == set()


async def test_the_store_searches_by_words_and_forgets_in_time() -> None:
    async with aforesaid.open("memory://") as memory:
        store = AforesaidStore(memory.of("kim"), ttl={"default_ttl": 0.0})
        await store.aput(("notes",), "a", {"text": "Anna grows roses in her garden"}, ttl=None)
        await store.aput(("notes",), "b", {"text": "The car needs oil"}, ttl=None)
        found = await store.asearch(("notes",), query="who has a garden with roses?")
        assert found[0].key == "a"
        await store.aput(("notes",), "c", {"text": "gone at once"})
        assert await store.aget(("notes",), "c") is None
        assert await store.sweep_ttl() == 1
        assert await AforesaidStore(memory.of("lee")).asearch(("notes",)) == []


async def test_a_file_of_langgraphs_own_saver_is_imported(tmp_path: Path) -> None:
    path = str(tmp_path / "theirs.db")
    async with AsyncSqliteSaver.from_conn_string(path) as theirs:
        call = {"name": "f", "args": {"a": 1}, "id": "c"}
        answers: list[BaseMessage] = [
            AIMessage(content="", tool_calls=[call]),
            ToolMessage(content="r", tool_call_id="c"),
            AIMessage(content="Lima"),
        ]
        graph = graph_of(lambda _: answers, theirs)
        await graph.ainvoke({"messages": [HumanMessage(content="Peru?")]}, config("t"))
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        report = await import_history(kim, FORMATS["langgraph"], path)
        again = await import_history(kim, FORMATS["langgraph"], path)
        messages = await kim.messages("langgraph/t")
    assert (report.messages, again.messages, report.skipped) == (4, 0, ())
    assert [(one.role, one.content) for one in messages] == [
        ("user", "Peru?"),
        ("assistant", ""),
        ("tool", "r"),
        ("assistant", "Lima"),
    ]


async def test_all_paths_of_a_thread_are_imported_with_their_times(tmp_path: Path) -> None:
    """A fork, a message that the state lost since, and a damaged checkpoint."""
    path = str(tmp_path / "theirs.db")
    async with AsyncSqliteSaver.from_conn_string(path) as theirs:
        graph = graph_of(lambda said: [AIMessage(content=f"to {said[-1].content}")], theirs)
        await graph.ainvoke({"messages": [HumanMessage(content="one", id="1")]}, config("t"))
        first = (await graph.aget_state(config("t"))).config
        await graph.ainvoke({"messages": [HumanMessage(content="two")]}, config("t"))
        await graph.ainvoke({"messages": [HumanMessage(content="three")]}, first)
        await graph.aupdate_state(config("t"), {"messages": [RemoveMessage(id="1")]})
        await graph.ainvoke({"messages": [HumanMessage(content="four")]}, config("t"))
        await theirs.conn.execute(
            "UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id = "
            "(SELECT MAX(checkpoint_id) FROM checkpoints)"
        )
        await theirs.conn.commit()
    async with aforesaid.open("memory://") as memory:
        kim = memory.of("kim")
        report = await import_history(kim, FORMATS["langgraph"], path)
        again = await import_history(kim, FORMATS["langgraph"], path)
        messages = await kim.messages("langgraph/t")
        (branch,) = [one for one in await kim.branches("langgraph/t") if one.parent_id is not None]
        other = await kim.messages(branch.conversation_id)
    # The last answer was in the damaged checkpoint only.
    assert [one.content for one in messages] == ["one", "to one", "three", "to three", "four"]
    assert [one.content for one in other] == ["one", "to one", "two", "to two"]
    times = [one.timestamp for one in messages if one.timestamp is not None]
    assert len(set(times)) == len(times) == 5
    assert times == sorted(times)
    assert again.messages == 0
    assert len(report.skipped) == 1


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_plain(one) for one in value), key=str)
    return (value.namespace, value.key, value.value) if hasattr(value, "namespace") else value
