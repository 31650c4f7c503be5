"""Where things land in another provider's request, case by case."""

import json
from typing import Any

import pytest

from aforesaid.dialects import DIALECTS, OPENING, Request, meaning_of, read, tool_result, write
from aforesaid.model.messages import Message
from aforesaid.testing.validity import problems

HI = {"role": "user", "content": "hi"}


def converted(given: Any, target: str, source: str | None = None) -> Request:
    request = write(read(given, dialect=source), target)
    assert problems(request, target) == []
    return request


def chat_call(call_id: str, arguments: str = "{}", content: str | None = None) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def chat_answer(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}}


def result(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok", **fields}


# The system prompt


def test_the_system_prompt_is_a_parameter_for_anthropic() -> None:
    request = converted([{"role": "developer", "content": "be brief"}, HI], "anthropic")
    assert request == Request(messages=[HI], system="be brief")


def test_several_system_prompts_become_blocks() -> None:
    blocks = [{"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]
    messages = [
        *read({"role": "system", "content": "one"}),
        *read({"role": "system", "content": blocks}, dialect="anthropic"),
        *read(HI),
        *read({"role": "system", "content": "three"}),
    ]
    request = write(messages, "anthropic")
    assert request.system == [{"type": "text", "text": "one"}, *blocks, {"type": "text", "text": "three"}]
    assert request.messages == [HI]


def test_anthropics_own_later_system_message_stays_behind_the_user() -> None:
    later = {"role": "system", "content": "be brief"}
    messages = [HI, later, {"role": "assistant", "content": "yes"}]
    assert converted(messages, "anthropic", "anthropic") == Request(messages=messages)
    misplaced = [HI, {"role": "assistant", "content": "yes"}, later, HI]
    assert converted(misplaced, "anthropic", "anthropic").system == "be brief"


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "plain"])
def test_elsewhere_the_system_prompt_stays_in_the_list(target: str) -> None:
    given = [{"role": "system", "content": [{"type": "text", "text": "be brief"}]}, HI]
    request = converted(given, target, "anthropic")
    assert request == Request(messages=[{"role": "system", "content": "be brief"}, HI])


# Tool calls and results


def test_parallel_results_go_into_the_one_next_user_message() -> None:
    calls = {**chat_call("a"), "tool_calls": chat_call("a")["tool_calls"] + chat_call("b")["tool_calls"]}
    request = converted([HI, calls, chat_answer("a"), chat_answer("b"), HI], "anthropic")
    assert request.messages[1:] == [
        {"role": "assistant", "content": [use("a"), use("b")]},
        {"role": "user", "content": [result("a"), result("b"), {"type": "text", "text": "hi"}]},
    ]


def test_results_that_came_in_messages_of_their_own_are_joined_for_anthropic() -> None:
    given = [
        HI,
        {"role": "assistant", "content": [use("a"), use("b")]},
        {"role": "user", "content": [result("b")]},
        {"role": "user", "content": [result("a")]},
    ]
    assert converted(given, "anthropic").messages[2:] == [
        {"role": "user", "content": [result("b"), result("a")]}
    ]


@pytest.mark.parametrize("target", ["anthropic", "openai_chat", "plain"])
def test_a_late_result_moves_up_to_its_call(target: str) -> None:
    words = {"type": "text", "text": "are you there?"}
    given = [
        HI,
        {"role": "assistant", "content": [use("a"), use("b")]},
        {"role": "user", "content": [result("a")]},
        {"role": "user", "content": [words]},
        {"role": "user", "content": [result("b"), {"type": "text", "text": "go on"}]},
    ]
    messages = read(converted(given, target).messages, dialect=target)
    order = [each.call_id for message in messages for each in meaning_of(message).results]
    assert order == ["a", "b"]
    assert [meaning_of(message).text for message in messages][-2:] == ["are you there?", "go on"]


def test_results_come_first_in_their_message() -> None:
    words = {"type": "text", "text": "so"}
    given = [
        HI,
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [words, result("a")]},
    ]
    assert converted(given, "anthropic").messages[2]["content"] == [result("a"), words]


def test_items_of_one_answer_become_one_message() -> None:
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs", "summary": []},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "wait"}],
            "type": "message",
            "id": "m",
        },
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "look", "arguments": '{"x": 1}'},
        {"type": "function_call_output", "call_id": "a", "output": "ok"},
        {"type": "function_call_output", "call_id": "b", "output": "ok"},
    ]
    anthropic = converted(given, "anthropic").messages
    assert anthropic[1]["content"] == [
        {"type": "text", "text": "wait"},
        use("a"),
        {**use("b"), "input": {"x": 1}},
    ]
    assert anthropic[2] == {"role": "user", "content": [result("a"), result("b")]}
    chat = converted(given, "openai_chat").messages
    assert chat[1]["content"] == "wait"
    assert [call["id"] for call in chat[1]["tool_calls"]] == ["a", "b"]
    assert chat[2:] == [chat_answer("a"), chat_answer("b")]


def test_words_between_calls_keep_their_place_in_responses() -> None:
    content = [{"type": "text", "text": "one"}, use("a"), {"type": "text", "text": "two"}, use("b")]
    given = [
        HI,
        {"role": "assistant", "content": content},
        {"role": "user", "content": [result("a"), result("b")]},
    ]
    kinds = [item.get("type", item.get("content")) for item in converted(given, "openai_responses").messages]
    assert kinds == ["hi", "one", "function_call", "two", "function_call", *["function_call_output"] * 2]


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_an_error_is_said_in_words_where_there_is_no_flag(target: str) -> None:
    given = [
        HI,
        {"role": "assistant", "content": [use("a"), use("b"), use("c")]},
        {
            "role": "user",
            "content": [
                result("a", content="no such lamp", is_error=True),
                result("b", content="Error: known", is_error=True),
                result("c", content="", is_error=True),
            ],
        },
    ]
    answers = [meaning_of(message).results for message in read(converted(given, target).messages)]
    assert [each[0].content for each in answers if each] == ["Error: no such lamp", "Error: known", "Error"]


def test_the_flag_is_kept_between_anthropic_and_plain() -> None:
    call = {"role": "assistant", "content": [use("a")]}
    given = [HI, call, {"role": "user", "content": [result("a", is_error=True)]}]
    plain = converted(given, "plain").messages
    assert plain[-1] == {"role": "tool", "tool_call_id": "a", "content": "ok", "is_error": True}
    assert converted(plain, "anthropic", "plain").messages[-1]["content"] == [result("a", is_error=True)]


@pytest.mark.parametrize("broken", ["{oops", "[1, 2]", '"text"', '{"a": NaN}', "{} trailing", "[" * 100_000])
@pytest.mark.parametrize("target", ["anthropic", "openai_responses", "plain"])
def test_arguments_that_are_no_object_survive(broken: str, target: str) -> None:
    request = converted([HI, chat_call("a", broken), chat_answer("a")], target)
    (call,) = [
        call for message in read(request.messages, dialect=target) for call in meaning_of(message).calls
    ]
    arguments = json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
    assert arguments == {"unparsed_arguments": broken}


def test_no_arguments_are_an_empty_object() -> None:
    request = converted([HI, chat_call("a", ""), chat_answer("a")], "anthropic")
    assert request.messages[1]["content"] == [use("a")]


def test_arguments_that_are_json_keep_their_spelling_between_openais_two() -> None:
    spelled = '{"a":1,  "b": "\\u00e9"}'
    request = converted([HI, chat_call("a", spelled), chat_answer("a")], "openai_responses")
    assert request.messages[1]["arguments"] == spelled


@pytest.mark.parametrize("target", ["anthropic", "openai_responses"])
def test_an_id_that_the_target_refuses_is_replaced_for_call_and_result_alike(target: str) -> None:
    strange = "functions.look:0"
    request = converted([HI, chat_call(strange), chat_answer(strange)], target)
    meanings = [meaning_of(message) for message in read(request.messages, dialect=target)]
    (called,) = [call.id for meaning in meanings for call in meaning.calls]
    (answered,) = [each.call_id for meaning in meanings for each in meaning.results]
    assert called == answered != strange


def test_a_strange_id_stays_where_the_call_is_the_targets_own() -> None:
    strange = "functions.lookup:0"
    answer = Message(role="tool", content="ok", extra={"tool_call_id": strange})
    request = write([*read([HI, chat_call(strange)]), answer], "openai_chat")
    assert request.messages[-1] == chat_answer(strange)


def test_a_custom_tool_gets_a_result_of_its_type() -> None:
    call = {"type": "custom_tool_call", "call_id": "a", "name": "shell", "input": "ls"}
    made = tool_result("openai_responses", call_id="a", name="shell", text="ok")
    request = write([*read([HI, call]), made], "openai_responses")
    assert problems(request, "openai_responses") == []
    assert request.messages[-1] == {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}


def test_a_tool_message_that_answers_no_call_becomes_words() -> None:
    messages = [Message(role="user", content="hi"), Message(role="tool", content="22 °C")]
    for target in ("anthropic", "openai_chat", "openai_responses"):
        request = write(messages, target)
        assert problems(request, target) == []
        assert "22 °C" in json.dumps(request.messages, ensure_ascii=False)


# Thinking, images, and what has no place elsewhere

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "plain"])
def test_thinking_does_not_travel(target: str) -> None:
    answer = {"role": "assistant", "content": [THINKING, {"type": "text", "text": "yes"}]}
    request = converted([HI, answer], target)
    assert request.messages[1] == {"role": "assistant", "content": "yes"}


def test_reasoning_stays_before_its_item_and_is_left_out_without_one() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": []}
    call = {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "ok"}
    whole = [HI, reasoning, call, output]
    assert converted(whole, "openai_responses").messages == whole
    for cut_off in ([HI, reasoning], [HI, reasoning, HI], [HI, call, reasoning, reasoning, output]):
        assert reasoning not in converted(cut_off, "openai_responses", "openai_responses").messages


def test_anthropic_messages_of_nothing_are_left_out() -> None:
    given = [
        HI,
        {"role": "assistant", "content": []},
        {"role": "user", "content": [{"type": "text", "text": " "}, {"type": "text", "text": "there?"}]},
        {"role": "assistant", "content": [THINKING]},
        {"role": "user", "content": ""},
    ]
    request = converted(given, "anthropic", "anthropic")
    assert request.messages == [HI, {"role": "user", "content": [{"type": "text", "text": "there?"}]}]


def test_an_assistant_who_begins_gets_an_opening_for_anthropic_alone() -> None:
    greeting = {"role": "assistant", "content": "Welcome home."}
    assert converted([greeting, HI], "anthropic").messages == [
        {"role": "user", "content": OPENING},
        greeting,
        HI,
    ]
    for target in ("openai_chat", "openai_responses", "plain"):
        assert converted([greeting, HI], target).messages == [greeting, HI]


DATA = "iVBORw0KGgo="
IMAGES = {
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    "openai_chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    "openai_responses": {
        "type": "input_image",
        "image_url": f"data:image/png;base64,{DATA}",
        "detail": "auto",
    },
}
ADDRESSED = {
    "anthropic": {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    "openai_chat": {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    "openai_responses": {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
}


@pytest.mark.parametrize("images", [IMAGES, ADDRESSED], ids=["base64", "url"])
@pytest.mark.parametrize("source", IMAGES)
@pytest.mark.parametrize("target", IMAGES)
def test_images_are_converted(images: dict[str, dict[str, Any]], source: str, target: str) -> None:
    (message,) = converted([{"role": "user", "content": [images[source]]}], target, source).messages
    (block,) = message["content"]
    if (source, target) == ("openai_responses", "openai_chat"):
        assert block["image_url"].pop("detail") == "auto"
    assert block == images[target]


def test_how_closely_to_look_is_kept_between_openais_two() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    (message,) = converted([{"role": "user", "content": [image]}], "openai_responses").messages
    assert message["content"][0]["detail"] == "low"


def test_an_image_in_a_result_follows_the_results_in_chat() -> None:
    given = [
        HI,
        {"role": "assistant", "content": [use("a"), use("b")]},
        {"role": "user", "content": [result("a", content=[IMAGES["anthropic"]])]},
        {"role": "user", "content": [result("b")]},
    ]
    messages = converted(given, "openai_chat").messages
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[2]["content"] == "[image: see below]"
    assert messages[4]["content"][1] == IMAGES["openai_chat"]


def test_an_image_in_a_result_stays_in_it_for_the_others() -> None:
    call = {"role": "assistant", "content": [use("a")]}
    given = [HI, call, {"role": "user", "content": [result("a", content=[IMAGES["anthropic"]])]}]
    items = converted(given, "openai_responses").messages
    assert items[-1]["output"] == [IMAGES["openai_responses"]]
    assert converted(items, "anthropic").messages[-1]["content"] == [
        result("a", content=[IMAGES["anthropic"]])
    ]


def test_an_image_that_anthropic_does_not_take_is_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}
    (message,) = converted([{"role": "user", "content": [image]}], "anthropic").messages
    assert message["content"] == "[image/svg+xml]"


def test_what_only_its_own_dialect_can_hold_is_named_or_quoted() -> None:
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "the manual"},
    }
    given = [{"role": "user", "content": [document, {"type": "hologram"}, {"type": "text", "text": "?"}]}]
    (message,) = converted(given, "openai_chat", "anthropic").messages
    assert [block["text"] for block in message["content"]] == ["the manual", "[hologram]", "?"]


def test_a_providers_own_work_in_an_answer_stays_behind() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    answer = {"role": "assistant", "content": [search, {"type": "text", "text": "found"}]}
    assert converted([HI, answer], "openai_responses").messages[1] == {
        "role": "assistant",
        "content": "found",
    }


@pytest.mark.parametrize("target", DIALECTS)
def test_content_that_is_mere_json_is_sent_as_json_text(target: str) -> None:
    request = write([Message(role="user", content={"lux": 5}, dialect="sensor")], target)
    assert [meaning_of(message).text for message in read(request.messages)] == ['{"lux": 5}']


@pytest.mark.parametrize("target", ["plain", "anthropic", "openai_chat", "openai_responses"])
def test_mere_words_are_alike_in_all(target: str) -> None:
    words = [HI, {"role": "assistant", "content": "hello"}, HI, HI]
    assert converted(words, target).messages == words


PDF_DATA = "JVBERi0xLjQK"
DOCUMENTS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF_DATA},
        "title": "bill.pdf",
    },
    "openai_chat": {
        "type": "file",
        "file": {"filename": "bill.pdf", "file_data": f"data:application/pdf;base64,{PDF_DATA}"},
    },
    "openai_responses": {
        "type": "input_file",
        "filename": "bill.pdf",
        "file_data": f"data:application/pdf;base64,{PDF_DATA}",
    },
    "gemini": {"inlineData": {"mimeType": "application/pdf", "data": PDF_DATA}},
    "bedrock": {"document": {"format": "pdf", "name": "bill-pdf", "source": {"bytes": PDF_DATA}}},
}


@pytest.mark.parametrize("source", DOCUMENTS)
@pytest.mark.parametrize("target", [*DOCUMENTS, "plain"])
def test_a_pdf_becomes_the_targets_own_block(source: str, target: str) -> None:
    field = "parts" if source == "gemini" else "content"
    request = write(read({"role": "user", field: [DOCUMENTS[source]]}, dialect=source), target)
    assert problems(request, target) == []
    assert PDF_DATA in str(request.messages)
    form = DOCUMENTS.get(target, DOCUMENTS["anthropic"])
    block = request.messages[0]["parts" if target == "gemini" else "content"][0]
    assert block.keys() - {"title"} == form.keys() - {"title"}


def test_a_recording_goes_to_a_dialect_that_has_one_and_is_named_in_others() -> None:
    recording = {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}
    messages = read({"role": "user", "parts": [recording, {"text": "what is this?"}]}, dialect="gemini")
    assert write(messages, "openai_chat").messages[0]["content"][0] == {
        "type": "input_audio",
        "input_audio": {"data": "UklGRg==", "format": "wav"},
    }
    assert "[audio/wav]" in str(write(messages, "anthropic").messages)


TEXT_FILE = {"filename": "rain.txt", "file_data": "data:text/plain;base64,aXQgcmFpbnM="}
AS_TEXT: dict[str, Any] = {
    "anthropic": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "it rains"},
        "title": "rain.txt",
    },
    "openai_responses": {"type": "input_text", "text": "it rains"},
    "vllm": {"type": "text", "text": "it rains"},
    "azure": {"type": "text", "text": "it rains"},
    "openai_chat": {"type": "file", "file": TEXT_FILE},
    "gemini": {"inlineData": {"mimeType": "text/plain", "data": "aXQgcmFpbnM="}},
}


@pytest.mark.parametrize("target", AS_TEXT)
def test_a_file_of_text_arrives_as_a_file_or_with_its_words(target: str) -> None:
    content = [{"type": "file", "file": TEXT_FILE}, {"type": "text", "text": "?"}]
    log = read({"role": "user", "content": content}, dialect="openai_chat")
    request = write(log, target)
    field = "parts" if target == "gemini" else "content"
    assert request.messages[0][field][0] == AS_TEXT[target]
    assert problems(request, target) == []


@pytest.mark.parametrize("data", ["data:text/plain;base64,_", "data:text/plain;base64,/w=="])
def test_a_file_of_text_that_cannot_be_decoded_is_named(data: str) -> None:
    content = [{"type": "file", "file": {"file_data": data}}, {"type": "text", "text": "?"}]
    log = read({"role": "user", "content": content}, dialect="openai_chat")
    assert write(log, "anthropic").messages[0]["content"][0] == {"type": "text", "text": "[file]"}


@pytest.mark.parametrize("target", ["openai_chat", "openrouter", "vllm", "bedrock"])
def test_a_document_at_an_address_keeps_its_address(target: str) -> None:
    address = "https://example.com/rain.pdf"
    block = {"type": "document", "source": {"type": "url", "url": address}}
    log = read({"role": "user", "content": [block, {"type": "text", "text": "?"}]}, dialect="anthropic")
    assert address in str(write(log, target).messages)
