"""Write docs/reference/http.md from the routes themselves: `python scripts/api_reference.py`."""

import json
from pathlib import Path
from typing import Any

from aforesaid.server.app import ENDPOINTS
from aforesaid.server.openapi import openapi_document

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http.md"

HEAD = """\
# The HTTP interface

Generated from the OpenAPI document, which every server has at `/schema/openapi.json` and as a page at
`/schema`. [Run the server](../how-to/serve.md) describes keys and the protocol.
"""


def page() -> str:
    """The whole page."""
    document = openapi_document(ENDPOINTS)
    parts = [HEAD, document["info"]["description"], "", *_statuses(document)]
    for tag in document["tags"]:
        parts += ["", f"## {tag['name'].capitalize()}", "", tag["description"]]
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    parts += _operation(path, method, operation)
    parts += ["", "## Bodies", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts += _schema(name, schema)
    return "\n".join(parts) + "\n"


def _statuses(document: dict[str, Any]) -> list[str]:
    descriptions: dict[str, str] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            descriptions |= {status: each["description"] for status, each in operation["responses"].items()}
    rows = [f"| {status} | {descriptions[status]} |" for status in sorted(descriptions) if int(status) >= 300]
    return ["| status | |", "| --- | --- |", *rows]


def _operation(path: str, method: str, operation: dict[str, Any]) -> list[str]:
    lines = ["", f"### `{method.upper()} {path}`", "", operation["summary"]]
    if operation.get("description"):
        lines += ["", operation["description"]]
    if operation.get("parameters"):
        lines += ["", "| parameter | in | |", "| --- | --- | --- |"]
        lines += [_parameter(each) for each in operation["parameters"]]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        lines += ["", f"Body: `{media}`{_named(content['schema'])}"]
        if "example" in content:
            lines += ["", "```json", json.dumps(content["example"], ensure_ascii=False), "```"]
    return [*lines, "", f"Answers: {_answers(operation)}"]


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    kind = schema.get("type") or "one of " + ", ".join(f"`{each}`" for each in schema.get("enum", ()))
    words = parameter.get("description") or schema.get("description") or ""
    default = f"; default `{schema['default']}`" if "default" in schema else ""
    needed = ", required" if parameter["required"] else ""
    details = f"{kind}{default}{'. ' if words else ''}{words}"
    return f"| `{parameter['name']}` | {parameter['in']}{needed} | {details} |"


def _answers(operation: dict[str, Any]) -> str:
    statuses = []
    for status, answer in operation["responses"].items():
        good = int(status) < 300
        media = next(iter(answer.get("content", {"": {"schema": {}}}).items()))
        statuses.append(f"{status}{_named(media[1].get('schema', {})) if good else ''}")
    return ", ".join(statuses)


def _named(schema: dict[str, Any]) -> str:
    names = [each["$ref"].rpartition("/")[2] for each in (schema, *schema.get("anyOf", ())) if "$ref" in each]
    return f" ({' or '.join(f'[{name}](#{name.lower()})' for name in names)})" if names else ""


def _schema(name: str, schema: dict[str, Any]) -> list[str]:
    lines = [f"### {name}", "", " ".join(schema.get("description", "").split()), ""]
    if schema.get("properties"):
        lines += ["| field | |", "| --- | --- |"]
        needed = schema.get("required", ())
        lines += [
            f"| `{field}` | {_kind(each)}{', required' if field in needed else ''} |"
            for field, each in schema["properties"].items()
        ]
        lines.append("")
    return lines


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any JSON"))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
