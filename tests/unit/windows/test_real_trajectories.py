"""What real logs contain: items of every type, tools of the provider, summaries, and defects of servers."""

from random import Random
from typing import Any

import pytest
from benchmarks.sdk_samples import response_items, sample
from benchmarks.trajectories import MAKERS, SOURCES, judged, policies, random_trajectory

from aforesaid.dialects import read, write
from aforesaid.errors import NothingToSend
from aforesaid.model.messages import Message
from aforesaid.testing.histories import DIALECT_NAMES, STATES, State, entries_of
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window, write_request
from tests.unit.windows.logs import blocks, found, item, log, text, use, user, words

WHOLE = WindowPolicy()


def sent(*messages: Message, policy: WindowPolicy = WHOLE, dialect: str = "openai_responses") -> list[Any]:
    context = build_window(log(*messages), policy, cost=words)
    request = write_request(context, dialect)
    assert problems(request, dialect) == []
    return request.messages


def chat(**fields: Any) -> Message:
    return read({"role": "assistant", **fields}, dialect="openai_chat")[0]


def server_use(call_id: str) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": "rain"}}


def server_result(call_id: str) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


class TestResponses:
    def test_an_item_of_every_published_type_stays_in_the_window(self) -> None:
        random = Random(1)
        for kind, typed in response_items().items():
            if kind in ("message", "reasoning") or kind.endswith(("_output", "_response")):
                continue
            document = {**sample(random, typed), "call_id": "call_1", "id": "id_1"}
            if "arguments" in document:
                document["arguments"] = "{}"
            if "name" in document:
                document["name"] = "look"
            if kind == "item_reference":
                document = {"id": "id_1"}
            (message,) = read(document, dialect="openai_responses")
            assert document in sent(user("hello"), message), kind

    @pytest.mark.parametrize("execution", ["server", "client"])
    def test_a_tool_search_stays_with_its_output(self, execution: str) -> None:
        call_id = None if execution == "server" else "call_1"
        call = item(type="tool_search_call", call_id=call_id, execution=execution, arguments={})
        output = item(type="tool_search_output", call_id=call_id, execution=execution, tools=[])
        assert sent(user("hello"), call, output)[1:] == [call.extra, output.extra]

    def test_a_tool_search_that_is_answered_as_a_function_keeps_its_words(self) -> None:
        call = item(type="tool_search_call", call_id="call_1", execution="client", arguments={})
        output = item(type="function_call_output", call_id="call_1", output="one tool")
        assert sent(user("hello"), call, output)[1:] == [call.extra, output.extra]

    def test_an_approval_stays_with_its_request(self) -> None:
        asked = item(type="mcp_approval_request", id="mcpr_1", name="f", arguments="{}", server_label="s")
        given = item(type="mcp_approval_response", approval_request_id="mcpr_1", approve=True)
        assert sent(user("hello"), asked, given)[1:] == [asked.extra, given.extra]

    def test_items_of_an_unknown_type_are_kept_and_paired_by_their_id(self) -> None:
        call = item(type="dream_call", call_id="c", about="sheep")
        output = item(type="dream_call_output", call_id="c", seen="sheep")
        assert sent(user("hello"), call, output)[1:] == [call.extra, output.extra]
        newest = WindowPolicy(max_messages=1, for_request=True)
        assert sent(user("hello"), call, output, policy=newest) == [call.extra, output.extra]
        assert sent(user("hello"), output) == [{"role": "user", "content": "hello"}]

    def test_an_interrupted_call_gets_an_output_of_its_own_type(self) -> None:
        random = Random(2)
        for kind in (
            "computer_call",
            "shell_call",
            "local_shell_call",
            "apply_patch_call",
            "custom_tool_call",
        ):
            call = item(**{**sample(random, response_items()[kind]), "call_id": "call_1"})
            assert sent(user("hello"), call, user("and?"))[2]["type"] == f"{kind}_output"


class TestPlaceholders:
    def test_a_function_call_without_a_name_is_no_call(self) -> None:
        placeholder = chat(content="hi", function_call={"name": "", "arguments": ""})
        for dialect in DIALECT_NAMES:
            assert len(sent(user("hello"), placeholder, user("and?"), dialect=dialect)) == 3
        assert sent(user("hello"), placeholder, dialect="openai_chat")[1] == {
            "role": "assistant",
            "content": "hi",
        }

    def test_a_deprecated_call_that_was_interrupted_is_a_valid_request(self) -> None:
        call = chat(content=None, function_call={"name": "look", "arguments": "{}"})
        for dialect in DIALECT_NAMES:
            assert sent(user("hello"), call, user("and?"), call, user("and?"), dialect=dialect)


class TestAnthropic:
    def test_a_tool_of_the_provider_stays_with_its_result_in_the_next_message(self) -> None:
        first, second = (
            blocks("assistant", server_use("s1")),
            blocks("assistant", server_result("s1"), text("rain")),
        )
        for most in (1, 2, 3):
            policy = WindowPolicy(max_messages=most, for_request=True)
            assert sent(user("rain?"), first, second, policy=policy, dialect="anthropic")[-2:] == [
                {"role": "assistant", "content": first.content},
                {"role": "assistant", "content": second.content},
            ]

    def test_the_result_of_a_client_tool_stays_between_the_halves(self) -> None:
        log = (
            user("rain?"),
            blocks("assistant", server_use("s1"), use("c1")),
            blocks("user", found("c1")),
            blocks("assistant", server_result("s1"), text("rain")),
        )
        policy = WindowPolicy(max_messages=1, for_request=True)
        documents = sent(*log, policy=policy, dialect="anthropic")
        assert [each["content"] for each in documents[-3:]] == [each.content for each in log[1:]]

    def test_half_a_pair_is_left_out_and_reported(self) -> None:
        context = build_window(
            log(user("a"), blocks("assistant", server_result("s1"), text("rain"))), WHOLE, cost=words
        )
        request = write_request(context, "anthropic")
        assert request.messages[-1]["content"] == [text("rain")]
        assert "without their other half" in request.repaired[0]

    def test_a_change_of_tools_stays_in_the_messages(self) -> None:
        change = {"type": "tool_addition", "tool": {"type": "tool_reference", "tool_name": "look"}}
        added = blocks("system", change)
        request = write([added, user("a"), blocks("assistant", text("b")), added, user("c")], "anthropic")
        assert request.system is None
        assert [each["role"] for each in request.messages] == [
            "user",
            "system",
            "assistant",
            "user",
            "system",
        ]
        assert problems(request, "anthropic") == []

    def test_at_most_four_cache_marks_are_sent(self) -> None:
        marked = [
            blocks("user", {**text(f"part {n}"), "cache_control": {"type": "ephemeral"}}) for n in range(6)
        ]
        request = write(marked, "anthropic")
        assert problems(request, "anthropic") == []
        assert ["cache_control" in each["content"][0] for each in request.messages] == [False] * 2 + [
            True
        ] * 4
        assert request.repaired == ("2 cache_control marks beyond four, left out",)

    def test_a_final_answer_does_not_end_with_a_blank(self) -> None:
        request = write([user("a"), blocks("assistant", text("one \n"))], "anthropic")
        assert request.messages[-1]["content"] == [text("one")]

    def test_thinking_may_follow_a_tool_of_the_provider(self) -> None:
        thinking = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
        answer = blocks("assistant", server_use("s1"), server_result("s1"), thinking, text("rain"))
        assert problems([{"role": "user", "content": "a"}, {**answer.to_dict()}], "anthropic") == []
        late = [text("hm"), thinking, text("rain")]
        refused = [{"role": "user", "content": "a"}, {"role": "assistant", "content": late}]
        assert problems(refused, "anthropic") != []


class TestCompaction:
    SUMMARY = {"type": "compaction", "content": "They spoke of rain."}

    def test_a_request_starts_with_the_newest_summary(self) -> None:
        first = blocks("assistant", {"type": "compaction", "content": "older"}, text("b"))
        newest = blocks("assistant", self.SUMMARY, text("d"))
        documents = sent(user("a"), first, user("c"), newest, user("e"), dialect="anthropic")
        assert documents == [
            {"role": "assistant", "content": newest.content},
            {"role": "user", "content": "e"},
        ]

    @pytest.mark.parametrize("dialect", DIALECT_NAMES)
    def test_a_summary_alone_is_a_request_in_every_dialect(self, dialect: str) -> None:
        policy = WindowPolicy(max_messages=1, for_request=True)
        summary = blocks("assistant", self.SUMMARY)
        assert "They spoke of rain." in str(sent(user("a"), summary, policy=policy, dialect=dialect))

    @pytest.mark.parametrize("dialect", DIALECT_NAMES)
    def test_a_summary_survives_a_cut(self, dialect: str) -> None:
        turns = [each for n in range(8) for each in (user(f"q{n}"), blocks("assistant", text(f"a{n}")))]
        policy = WindowPolicy(max_messages=6, for_request=True)
        documents = sent(user("a"), blocks("assistant", self.SUMMARY), *turns, policy=policy, dialect=dialect)
        assert "They spoke of rain." in str(documents)
        assert "q1" not in str(documents)

    def test_a_failed_compaction_is_left_out(self) -> None:
        failed = blocks("assistant", {"type": "compaction", "content": None}, text("b"))
        assert sent(user("a"), failed, dialect="anthropic")[1]["content"] == [text("b")]


class TestCompatibleServers:
    LONG = "chatcmpl-tool-0123456789abcdef0123456789abcdef"

    def test_calls_are_completed_and_the_repair_is_reported(self) -> None:
        call = {"id": self.LONG, "function": {"name": "home.light"}}
        (answer,) = read({"role": "tool", "tool_call_id": self.LONG, "content": "ok"}, dialect="openai_chat")
        messages = [user("a"), chat(content=None, tool_calls=[call]), answer]
        request = write(messages, "openai_chat")
        assert problems(request, "openai_chat") == []
        assert [line.split(" ", 1)[1][:25] for line in request.repaired] == [
            "call ids with characters ",
            "calls whose arguments wer",
            "calls without a type",
            "tool names with character",
        ]
        assert messages[1].extra["tool_calls"] == [call]

    def test_an_empty_list_of_calls_is_left_out(self) -> None:
        assert sent(user("a"), chat(content="b", tool_calls=[]), dialect="openai_chat")[1] == {
            "role": "assistant",
            "content": "b",
        }

    def test_thinking_of_mistral_is_not_anthropics(self) -> None:
        thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
        (message,) = read({"role": "assistant", "content": [thinking, text("b")]})
        assert message.dialect == "openai_chat"
        assert sent(user("a"), message, dialect="openai_chat")[1]["content"] == [text("b")]

    def test_calls_of_ollama_are_answered_by_name(self) -> None:
        (answer,) = read({"role": "tool", "tool_name": "look", "content": "ok"}, dialect="openai_chat")
        call = chat(content="", tool_calls=[{"function": {"name": "look", "arguments": {"at": "sky"}}}])
        for dialect in DIALECT_NAMES:
            assert sent(user("a"), call, answer, call, answer, dialect=dialect)


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock", "openai_chat"])
def test_marks_are_set_at_the_stable_prefix_on_request(dialect: str) -> None:
    turns = [each for n in range(4) for each in (user(f"q{n}"), blocks("assistant", text(f"a{n}")))]
    context = build_window(
        log(Message(role="system", content="be brief"), *turns, user("q4")), WHOLE, cost=words
    )
    plain = write_request(context, dialect)
    marked = write_request(context, dialect, cache_marks=True)
    assert problems(marked, dialect) == []
    found = str(marked.messages).count("cache_control") + str(marked.messages).count("cachePoint")
    assert found == (0 if dialect == "openai_chat" else 1)
    assert (marked == plain) == (dialect == "openai_chat")
    stable = len(context.messages) - 1  # the system prompt is apart
    if dialect != "openai_chat":
        assert "cache" in str(marked.messages[stable - 1])
        assert "cache" in str(marked.system)


def test_the_inserted_opening_is_part_of_the_budget() -> None:
    greeting = [Message(role="assistant", content=f"welcome to room {n}") for n in range(20)]
    context = build_window(log(*greeting), WindowPolicy(max_tokens=60), cost=words)
    documents = write_request(context, "anthropic").messages
    counted = sum(words(Message(role=each["role"], content=each["content"])) for each in documents)
    assert documents[0]["role"] == "user"
    assert counted == context.report.tokens.total <= 60


def test_a_window_with_nothing_that_a_provider_accepts_raises() -> None:
    only = blocks("assistant", server_use("s1"))
    context = build_window(log(only, user(" ")), WHOLE, cost=words)
    for dialect in ("anthropic", "gemini", "bedrock"):
        with pytest.raises(NothingToSend):
            write_request(context, dialect)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_every_window_of_a_random_trajectory_is_a_valid_request(state: State) -> None:
    random = Random(f"trajectories {state}")
    for source in SOURCES:
        for _ in range(4):
            messages = random_trajectory(random, source=source, state=state, turns=random.choice((1, 4)))
            entries = entries_of(messages)
            for policy in policies(random, len(entries)):
                for dialect, broken in judged(entries, policy):
                    assert not broken, (source, dialect, broken, policy)


def test_the_generator_makes_segments_for_every_dialect_of_a_provider() -> None:
    assert set(MAKERS) == set(DIALECT_NAMES) - {"plain"}
