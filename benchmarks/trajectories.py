"""How many requests a provider would refuse: logs with everything that real ones contain.

    python -m benchmarks.trajectories [requests] [seed]

The logs of `aforesaid.testing.histories`, in one dialect or several, with segments inserted anywhere: every
block and item type of the SDKs' published types, tools that the provider runs (in one message or across two),
compaction, interleaved thinking, changes of tools, placeholders, and the quirks of servers that imitate
OpenAI. Windows of every size are rendered in every dialect and judged by the providers' rules.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from time import perf_counter
from typing import Any

from aforesaid.contracts import Entry
from aforesaid.dialects import read
from aforesaid.errors import NothingToSend
from aforesaid.model.messages import Message
from aforesaid.testing.histories import (
    DIALECT_NAMES,
    STATES,
    TARGET_NAMES,
    State,
    entries_of,
    random_history,
)
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy, build_window, write_request
from benchmarks import sdk_samples
from benchmarks.sdk_samples import sample

SOURCES = (*DIALECT_NAMES, "mixed")
# Requests between two lines of progress.
PROGRESS = 20_000
SIGNED = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "c2ln"}

Document = dict[str, Any]
Segment = list[Document]
Maker = Callable[[Random], Segment]


def _assistant(*blocks: Document) -> Document:
    return {"role": "assistant", "content": list(blocks)}


def _user(*blocks: Document) -> Document:
    return {"role": "user", "content": list(blocks)}


def _text(random: Random) -> Document:
    return {"type": "text", "text": f"words {random.randint(0, 99)}{random.choice(('', '', ' '))}"}


def _id(random: Random, prefix: str) -> str:
    return f"{prefix}_{random.randrange(1 << 40):x}"


# Anthropic


def anthropic_block(random: Random) -> Segment:
    """A block that stands alone, by the type that the SDK publishes."""
    alone = {
        kind: typed
        for kind, typed in sdk_samples.anthropic_blocks().items()
        if not kind.endswith(("tool_use", "tool_result")) and kind not in ("thinking", "redacted_thinking")
    }
    kind = random.choice(sorted(alone))
    block = sample(random, alone[kind])
    if random.random() < 0.5:
        block["cache_control"] = {"type": "ephemeral"}
    if kind in ("tool_addition", "tool_removal"):
        return [{"role": "system", "content": random.choice(([block], [_text(random), block]))}]
    of_model = kind in ("compaction", "mcp_tool_listing", "fallback")
    if kind == "compaction" and random.random() < 0.5:
        return [_assistant(block)]
    return [_assistant(block, _text(random)) if of_model else _user(_text(random), block)]


def server_tool(random: Random) -> Segment:
    """A tool that the provider runs, with interleaved thinking, in one message or across two."""
    blocks = sdk_samples.anthropic_blocks()
    results = sorted(kind for kind in blocks if kind.endswith("_tool_result") and kind != "mcp_tool_result")
    call_id, kind = _id(random, "srvtoolu"), random.choice([*results, "mcp_tool_result"])
    use_kind = "mcp_tool_use" if kind == "mcp_tool_result" else "server_tool_use"
    use = {**sample(random, blocks[use_kind]), "id": call_id}
    found = {**sample(random, blocks[kind]), "tool_use_id": call_id}
    thinking = random.choice(([SIGNED], [REDACTED], [], [], []))
    first = [*random.choice(([], thinking, [_text(random)])), use]
    shape = random.choice(("one", "paused", "with client tool", "unfinished"))
    if shape == "one":
        return [_assistant(*first, found, *thinking, _text(random))]
    if shape == "unfinished":
        return [_assistant(*first)]
    second = _assistant(found, *thinking, _text(random))
    if shape == "paused":
        return [_assistant(*first), second]
    client = {"type": "tool_use", "id": _id(random, "toolu"), "name": "lookup", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": client["id"], "content": "found"}
    return [_assistant(*first, client), _user(answer), second]


# OpenAI


def response_item(random: Random) -> Segment:
    """An item that stands alone, by the type that the SDK publishes."""
    paired = (*_PAIRS, *_PAIRS.values(), "message", "reasoning")
    alone = {kind: typed for kind, typed in sdk_samples.response_items().items() if kind not in paired}
    return [sample(random, alone[random.choice(sorted(alone))])]


_PAIRS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
    "future_call": "future_call_output",
}


def item_pair(random: Random) -> Segment:
    """A call and its output, of a published type or of one that is not known yet."""
    types = sdk_samples.response_items()
    kind = random.choice(sorted(_PAIRS))
    call_id = _id(random, "call")
    if kind == "future_call":
        call: Document = {"type": kind, "call_id": call_id, "what": "new"}
        output: Document = {"type": _PAIRS[kind], "call_id": call_id, "result": "new"}
    else:
        call = {**sample(random, types[kind]), "call_id": call_id}
        output = {**sample(random, types[_PAIRS[kind]]), "call_id": call_id}
    if kind in ("function_call", "mcp_approval_request"):
        call |= {"name": "lookup", "arguments": "{}"}
    if kind == "mcp_approval_request":
        del call["call_id"], output["call_id"]
        call["id"] = output["approval_request_id"] = call_id
    if kind == "local_shell_call":
        del output["call_id"]
        output["id"] = call_id
    if kind in ("function_call", "custom_tool_call"):
        output["output"] = random.choice(("found", [{"type": "input_text", "text": "found"}]))
    if kind == "tool_search_call":
        _set_execution(random, call, output)
    thinking = [{"type": "reasoning", "id": _id(random, "rs"), "summary": []}]
    return [*(thinking if random.random() < 0.3 else []), call, *([output] if random.random() < 0.8 else [])]


def _set_execution(random: Random, call: Document, output: Document) -> None:
    execution = random.choice(("server", "client"))
    call["execution"] = output["execution"] = execution
    if execution == "server":
        call["call_id"] = output["call_id"] = None


def chat_part(random: Random) -> Segment:
    kind = random.choice(sorted(sdk_samples.chat_parts()))
    return [_user(_text(random), sample(random, sdk_samples.chat_parts()[kind]))]


def chat_quirk(random: Random) -> Segment:
    """What servers with OpenAI's interface send, and OpenAI refuses."""
    call_id = random.choice(
        (_id(random, "call"), _id(random, "chatcmpl-tool-" + "0" * 32), "functions.look:0")
    )
    name = random.choice(("lookup", "home.light/on", "n" * 80))
    function: Document = {"name": name}
    if random.random() < 0.7:
        function["arguments"] = random.choice(("{}", "", "{bad", {"room": "hall"}, None))
    call: Document = {"id": call_id, "function": function}
    if random.random() < 0.5:
        call["type"] = "function"
    answer: Document = {"role": "tool", "tool_call_id": call_id, "content": "found"}
    if random.random() < 0.2:  # Ollama
        del call["id"], answer["tool_call_id"]
        answer["tool_name"] = name
    quirks: list[Segment] = [
        [
            {"role": "assistant", "content": random.choice((None, "", "looking")), "tool_calls": [call]},
            answer,
        ],
        [{"role": "assistant", "content": "words", "tool_calls": []}],
        [{"role": "assistant", "content": None}],
        [{"role": "assistant", "content": "words", "function_call": {"name": "", "arguments": ""}}],
        [
            {"role": "assistant", "content": None, "function_call": {"name": "lookup", "arguments": "{}"}},
            {"role": "function", "name": "lookup", "content": "found"},
        ],
        [_mistral(random)],
        [{"role": "assistant", "content": "words", "reasoning_content": "so", "refusal": None}],
        [{"role": "assistant", "content": None, "refusal": "no"}],
    ]
    return random.choice(quirks)


def chat_server(random: Random) -> Segment:
    """What servers with OpenAI's interface send in fields and parts of their own."""
    call_id, data = _id(random, "call"), f"data:application/pdf;base64,{sdk_samples.PIXEL}"
    call: Document = {"id": call_id, "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
    answer: Document = {"role": "tool", "tool_call_id": call_id, "content": "found"}
    details = [{"type": "reasoning.encrypted", "data": "c2ln", "id": "rs_1", "format": "unknown"}]
    custom = {"id": call_id, "type": "custom", "custom": {"name": "lookup", "input": "free text"}}
    segments: list[Segment] = [
        # Mistral
        [
            _user(
                _text(random), {"type": "document_url", "document_url": random.choice((data, "https://a/b"))}
            )
        ],
        [_user({"type": "input_audio", "input_audio": sdk_samples.PIXEL}, _text(random))],
        [_user({"type": "image_url", "image_url": "https://example.com/picture.png"}, _text(random))],
        [_assistant(_text(random), {"type": "reference", "reference_ids": [1]})],
        [{**_assistant(_text(random)), "prefix": True}],
        # Ollama
        [{"role": "user", "content": "what is this", "images": [sdk_samples.PIXEL]}],
        [
            {
                "role": "assistant",
                "content": "",
                "thinking": "so",
                "tool_calls": [{"function": call["function"]}],
            }
        ],
        [{"role": "tool", "content": "found", "tool_name": "lookup"}],
        # vLLM
        [_user(_text(random), {"type": "video_url", "video_url": {"url": "https://example.com/film.mp4"}})],
        [{"role": "assistant", "content": "words", "reasoning": "so", "reasoning_content": "so"}],
        # Azure
        [{"role": "assistant", "content": "words", "context": {"citations": []}, "parsed": None}],
        [
            {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}], "annotations": []},
            answer,
        ],
        # OpenRouter
        [{"role": "assistant", "content": "words", "reasoning": "so", "reasoning_details": details}],
        [{"role": "assistant", "content": "", "reasoning_details": details, "tool_calls": [call]}, answer],
        # OpenAI
        [{"role": "assistant", "content": None, "tool_calls": [custom]}, answer],
        [{"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "words"}}],
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
        [{"role": "developer", "content": "be short", "name": "operator"}],
    ]
    return random.choice(segments)


def _mistral(random: Random) -> Document:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}
    return _assistant(thinking, *([_text(random)] if random.random() < 0.7 else []))


# Bedrock and Gemini


def bedrock_block(random: Random) -> Segment:
    """A block that stands alone, by the service's published description."""
    shapes = sdk_samples.bedrock_blocks()
    kind = random.choice(sorted(set(shapes) - {"toolUse", "toolResult"}))
    block = {kind: sdk_samples.bedrock_sample(random, shapes[kind])}
    of_model = kind in ("reasoningContent", "citationsContent")
    return [{"role": "assistant" if of_model else "user", "content": [block, {"text": "words"}]}]


def bedrock_server_tool(random: Random) -> Segment:
    """A tool that the service runs, in one message or across two."""
    call_id = _id(random, "srv")
    call = {"toolUseId": call_id, "name": "nova_grounding", "input": {}, "type": "server_tool_use"}
    found = {"toolUseId": call_id, "content": [{"json": {"q": 1}}], "type": "nova_grounding_result"}
    return _in_one_or_two(random, {"toolUse": call}, {"toolResult": found}, field="content")


def _in_one_or_two(random: Random, call: Document, found: Document, *, field: str) -> Segment:
    role = "model" if field == "parts" else "assistant"
    if random.random() < 0.7:
        return [{"role": role, field: [call, found, {"text": "words"}]}]
    return [{"role": role, field: [call]}, {"role": role, field: [found, {"text": "words"}]}]


_GEMINI_PARTS: tuple[Document, ...] = (
    {"inlineData": {"mimeType": "application/pdf", "data": sdk_samples.PIXEL}},
    {"inline_data": {"mime_type": "audio/wav", "data": sdk_samples.PIXEL}},
    {"futureData": {"found": "words"}},
)
_OF_MODEL = frozenset(("executableCode", "codeExecutionResult", "thought", "thoughtSignature", "futureData"))
# Calls and responses are segments of their own.
_PAIRED = frozenset(("functionCall", "functionResponse", "toolCall", "toolResponse"))


def gemini_part(random: Random) -> Segment:
    """A part that stands alone, sometimes with fields that describe it."""
    alone = [{kind: value} for kind, value in sdk_samples.GEMINI_PARTS.items() if kind not in _PAIRED]
    part = dict(random.choice([*alone, *_GEMINI_PARTS]))
    for name, value in sdk_samples.GEMINI_DESCRIPTIONS.items():
        if random.random() < 0.1 and (name != "thought" or "text" in part):
            part[name] = value
    return [{"role": "user" if _OF_MODEL.isdisjoint(part) else "model", "parts": [part, {"text": "words"}]}]


def gemini_server_tool(random: Random) -> Segment:
    """A tool that the service runs, in one content or across two."""
    halves = [
        {kind: {**sdk_samples.GEMINI_PARTS[kind], "id": _id(random, "st")}}
        for kind in ("toolCall", "toolResponse")
    ]
    halves[1]["toolResponse"]["id"] = halves[0]["toolCall"]["id"]
    return _in_one_or_two(random, *halves, field="parts")


MAKERS: dict[str, tuple[Maker, ...]] = {
    "anthropic": (anthropic_block, server_tool),
    "openai_responses": (response_item, item_pair, item_pair),
    "openai_chat": (chat_part, chat_quirk, chat_quirk, chat_server, chat_server),
    "bedrock": (bedrock_block, bedrock_block, bedrock_server_tool),
    "gemini": (gemini_part, gemini_part, gemini_server_tool),
}


def random_trajectory(random: Random, *, source: str, state: State, turns: int) -> list[Message]:
    """Return a random history with segments at random places."""
    messages = random_history(random, dialect=source, state=state, turns=turns)
    dialects = [source] if source in MAKERS else sorted(MAKERS)
    for _ in range(random.choice((0, 1, 2, 4))):
        dialect = random.choice(dialects)
        segment = read(random.choice(MAKERS[dialect])(random), dialect=dialect)
        # The end stays as the state says, unless the log is only segments.
        place = random.randrange(len(messages) + 1) if random.random() < 0.9 else len(messages)
        if random.random() < 0.8:
            messages[place:place] = segment
        else:  # other messages arrive between the parts of a segment
            for message in segment:
                messages.insert(place, message)
                place = min(len(messages), place + random.choice((1, 1, 2, 3)))
    return messages


def cost(message: Message) -> int:
    """A cost that needs no tokenizer: a quarter of the characters, and four for the frame."""
    return 4 + len(str(message.content) + str(message.extra)) // 4


def policies(random: Random, count: int) -> Iterator[WindowPolicy]:
    """Yield policies from one message to the whole log, by messages, turns and tokens."""
    for _ in range(3):
        yield WindowPolicy(max_messages=random.randint(1, count + 1), for_request=True)
    yield WindowPolicy(max_turns=random.randint(1, 6))
    for _ in range(2):
        yield WindowPolicy(
            max_tokens=random.choice((20, 60, 150, 400, 1200)),
            retention_ratio=random.choice((0.5, 0.75, 1.0)),
            preserve_system=random.random() < 0.8,
            look_back=random.choice((0, 3, 16)),
        )
    yield WindowPolicy(
        max_messages=random.randint(1, count + 1), count_retention_ratio=random.choice((0.5, 0.75))
    )
    yield WindowPolicy()


def judged(entries: Sequence[Entry], policy: WindowPolicy) -> Iterator[tuple[str, list[str]]]:
    """Yield each dialect with the rules that the request of this window breaks."""
    context = build_window(entries, policy, cost=cost)
    for dialect in TARGET_NAMES:
        try:
            request = write_request(context, dialect)
        except NothingToSend:
            continue
        yield dialect, problems(request, dialect)


def run(requests: int, seed: str, report: Callable[[str], None] = print) -> Counter[str]:
    """Judge so many requests; return their number, and how many were refused."""
    random = Random(seed)
    found: Counter[str] = Counter()
    shown = 0
    while found["requests"] < requests:
        if found["requests"] - shown >= PROGRESS:
            shown = found["requests"]
            report(f"{shown} requests so far, {found['refused']} refused")
        for state in STATES:
            for source in SOURCES:
                log_seed = random.randrange(1 << 48)
                entries = entries_of(trajectory(log_seed, source, state))
                for policy in policies(random, len(entries)):
                    for dialect, broken in judged(entries, policy):
                        found["requests"] += 1
                        if broken:
                            found["refused"] += 1
                            report(f"{source} {state} {log_seed} → {dialect}: {broken[0]} {policy}")
    return found


def trajectory(seed: int, source: str, state: State) -> list[Message]:
    """Return the log of a seed, to look at one that was reported."""
    random = Random(seed)
    return random_trajectory(random, source=source, state=state, turns=random.choice((0, 1, 3, 6)))


def main(requests: int, seed: str) -> None:
    logging.getLogger("aforesaid.windows").setLevel(logging.ERROR)
    start = perf_counter()
    found = run(requests, seed, report=lambda line: print(line, flush=True))
    took = perf_counter() - start
    print(f"{found['requests']} requests, {found['refused']} refused, {took:.0f} s, seed {seed}")


if __name__ == "__main__":
    main(*(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000,), sys.argv[2] if len(sys.argv) > 2 else "1")
