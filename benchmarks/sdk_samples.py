"""Random values of the types that the providers' SDKs publish, found by introspection.

A new block or item type of an SDK is covered as soon as the SDK is updated, without a change here. Importing
the SDKs takes seconds, so each is imported where its types are needed.
"""

import types
import typing
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Literal, NotRequired, Required, get_args, get_origin

from typing_extensions import is_typeddict

# Nested types deeper than this are left empty: some refer to themselves.
MAX_DEPTH = 5
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# Values that no type describes.
_VALUES = {
    "media_type": "image/png",
    "data": PIXEL,
    "url": "https://example.com/picture.png",
    "image_url": "https://example.com/picture.png",
    "file_data": f"data:application/pdf;base64,{PIXEL}",
}


def members(union: Any) -> list[Any]:
    """Return the types of a union, without annotations."""
    origin = get_origin(union)
    if origin in (typing.Annotated, Required, NotRequired):
        return members(get_args(union)[0])
    if origin is typing.Union or origin is types.UnionType:
        return [each for part in get_args(union) for each in members(part)]
    return [union]


@cache
def fields_of(typed: Any) -> dict[str, tuple[Any, bool]]:
    """Return the fields of a typed dict: their types, and whether they are required."""
    hints = typing.get_type_hints(typed, include_extras=True)
    return {name: (hint, _is_required(hint)) for name, hint in hints.items()}


def _is_required(hint: Any) -> bool:
    # The SDKs postpone annotations, so that the types' own list of required fields is empty.
    return get_origin(hint) is Required


@cache
def by_kind(union: Any) -> dict[str, Any]:
    """Return the members of a union of typed dicts by the value of their field `type`."""
    found: dict[str, Any] = {}
    for member in members(union):
        if is_typeddict(member) and "type" in fields_of(member):
            kind = _literal(fields_of(member)["type"][0])
            if kind is not None:
                found.setdefault(kind, member)
    return found


def _literal(hint: Any) -> str | None:
    values = [value for each in members(hint) if get_origin(each) is Literal for value in get_args(each)]
    return str(values[0]) if values else None


def sample(random: Random, hint: Any, name: str = "", depth: int = 0) -> Any:
    """Return a random value of a type."""
    # Where text is possible, a file object is not JSON.
    options = [each for each in members(hint) if not _is_file(each)]
    chosen = random.choice(options)
    origin = get_origin(chosen)
    if is_typeddict(chosen):
        return _object(random, chosen, depth)
    if origin is Literal:
        return random.choice(get_args(chosen))
    if origin in (list, tuple) or (origin is not None and "abc" in origin.__module__ and origin is not dict):
        inner = get_args(chosen)
        return [sample(random, inner[0], name, depth + 1)] if inner and depth < MAX_DEPTH else []
    if chosen in (bool, int, float):
        return chosen(1)
    if chosen is type(None):
        return None
    if chosen is str:
        return _VALUES.get(name, f"{name or 'text'} {random.randint(0, 99)}")
    return {}


def _is_file(hint: Any) -> bool:
    return getattr(hint, "__module__", "") == "os" or get_origin(hint) is typing.IO


def _object(random: Random, typed: Any, depth: int) -> dict[str, Any]:
    return {
        name: sample(random, hint, name, depth + 1)
        for name, (hint, required) in fields_of(typed).items()
        if required or (depth < 2 and random.random() < 0.15 and name not in ("cache_control", "caller"))
    }


# The published types


def anthropic_blocks() -> dict[str, Any]:
    from anthropic.types.beta import BetaContentBlockParam

    return by_kind(BetaContentBlockParam)


def response_items() -> dict[str, Any]:
    from openai.types.responses.response_input_item_param import ResponseInputItemParam

    return by_kind(ResponseInputItemParam)


def chat_parts() -> dict[str, Any]:
    from openai.types.chat import ChatCompletionContentPartParam

    return by_kind(ChatCompletionContentPartParam)


@cache
def _bedrock() -> Any:
    import boto3

    session = boto3.session.Session(region_name="us-east-1")
    client = session.client("bedrock-runtime", aws_access_key_id="none", aws_secret_access_key="none")
    return client.meta.service_model


def bedrock_blocks() -> dict[str, Any]:
    return dict(_bedrock().shape_for("ContentBlock").members)


def bedrock_sample(random: Random, shape: Any, name: str = "", depth: int = 0) -> Any:
    """Return a random value of a shape of Bedrock's service description."""
    kind = shape.type_name
    if kind == "structure":
        if getattr(shape, "is_document_type", False):
            return {"q": 1}
        chosen = set(shape.required_members)
        if getattr(shape, "is_tagged_union", False):
            chosen = {random.choice(sorted(shape.members))}
        elif depth < MAX_DEPTH:
            chosen |= {each for each in shape.members if random.random() < 0.2}
        return {
            each: bedrock_sample(random, shape.members[each], each, depth + 1)
            for each in shape.members
            if each in chosen
        }
    if kind == "list":
        return [bedrock_sample(random, shape.member, name, depth + 1)] if depth < MAX_DEPTH else []
    scalars: dict[str, Callable[[], Any]] = {
        "blob": lambda: PIXEL,
        "boolean": lambda: True,
        "integer": lambda: 1,
        "long": lambda: 1,
        "float": lambda: 1.0,
        "double": lambda: 1.0,
        "map": dict,
    }
    if kind in scalars:
        return scalars[kind]()
    return random.choice(shape.enum) if getattr(shape, "enum", None) else f"{name} {random.randint(0, 99)}"


# Gemini

GEMINI_PARTS: dict[str, Any] = {
    "text": "words",
    "inlineData": {"mimeType": "image/png", "data": PIXEL},
    "fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/film.mp4"},
    "executableCode": {"language": "PYTHON", "code": "1 + 1"},
    "codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"},
    "functionCall": {"name": "lookup", "args": {}},
    "functionResponse": {"name": "lookup", "response": {"output": "found"}},
    "toolCall": {"id": "st_1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["rain"]}},
    "toolResponse": {"id": "st_1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"found": "rain"}},
}
"""Each kind of part with a value. Gemini's SDK is not among the development packages; `make test-adapters`
compares this with the SDK of Google's ADK.
"""
GEMINI_DESCRIPTIONS: dict[str, Any] = {
    "thought": True,
    "thoughtSignature": "c2ln",
    "videoMetadata": {"fps": 1.0},
    "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW"},
    "mediaProcessing": {},
    "partMetadata": {"source": "file"},
    "speechMetadata": {},
    "audioTranscription": {"text": "words"},
}
"""Fields that describe a part, with a value."""


def gemini_parts() -> dict[str, Any]:
    """Return the types of a part's fields, by the names of the REST interface, from Gemini's SDK."""
    from google.genai import types

    return {str(each.alias or name): each.annotation for name, each in types.Part.model_fields.items()}


def gemini_sample(random: Random, hint: Any, name: str = "", depth: int = 0) -> Any:
    """Return a random value of a type of Gemini's SDK."""
    chosen = random.choice([each for each in members(hint) if each is not type(None)])
    fields = getattr(chosen, "model_fields", None)
    if fields is not None:
        given = {str(each.alias or field): each.annotation for field, each in fields.items()}
        return {
            field: gemini_sample(random, typed, field, depth + 1)
            for field, typed in given.items()
            if depth < 2 and (field in ("id", "name", "mimeType") or random.random() < 0.5)
        }
    origin = get_origin(chosen)
    if origin is list:
        return [gemini_sample(random, get_args(chosen)[0], name, depth + 1)] if depth < MAX_DEPTH else []
    if origin is dict or chosen is dict:
        return {"q": 1}
    if isinstance(chosen, type) and hasattr(chosen, "__members__"):
        return random.choice(sorted(chosen.__members__.values())).value
    if chosen in (bool, int, float):
        return chosen(1)
    if chosen is bytes or name == "data":
        return PIXEL
    return {"mimeType": "image/png", "fileUri": "https://example.com/a.png"}.get(name, f"{name} 1")
