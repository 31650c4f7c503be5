"""The rules of Home Assistant and HACS for a custom integration, where their own tools need a network."""

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "custom_components" / "aforesaid"
LANGUAGES = ("en", "de", "it", "nl", "fr", "es")


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def paths(document: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    if isinstance(document, str):
        return {at: document}
    return {path: text for key, value in document.items() for path, text in paths(value, (*at, key)).items()}


def test_the_manifest() -> None:
    manifest = read("manifest.json")
    keys = list(manifest)
    assert keys == ["domain", "name", *sorted(keys[2:])]
    for key in ("domain", "name", "codeowners", "documentation", "issue_tracker", "version"):
        assert manifest[key]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert manifest["version"] == project["version"]
    assert manifest["requirements"] == [f"aforesaid=={project['version']}"]
    assert manifest["domain"] == FOLDER.name
    assert manifest["documentation"] == f"{project['urls']['Documentation']}/how-to/home-assistant/"
    assert manifest["issue_tracker"] == project["urls"]["Issues"]
    assert all(url.startswith("https://") for url in project["urls"].values())
    # A silver, gold or platinum integration must have an owner.
    assert all(re.fullmatch(r"@[a-z0-9-]+", owner) for owner in manifest["codeowners"])


def test_hacs() -> None:
    hacs = json.loads((ROOT / "hacs.json").read_text())
    assert hacs == {"name": "Aforesaid", "homeassistant": "2026.10.0"}
    folders = [path.parent.name for path in (ROOT / "custom_components").glob("*/manifest.json")]
    assert folders == ["aforesaid"]
    assert (ROOT / "README.md").exists()


@pytest.mark.parametrize("language", LANGUAGES)
def test_translations(language: str) -> None:
    english, other = paths(read("translations/en.json")), paths(read(f"translations/{language}.json"))
    assert other.keys() == english.keys()
    for path, text in other.items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", english[path])), path
        assert text.strip()
    assert sorted(path.stem for path in (FOLDER / "translations").glob("*.json")) == sorted(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_follow_the_rules_for_translations(language: str) -> None:
    """Addresses come from placeholders, markup is Markdown, and placeholders are not in single quotes."""
    document = read(f"translations/{language}.json")
    for path, text in paths(document).items():
        assert "://" not in text, path
        assert not re.search(r"</?[a-z]+>", text), path
        assert not re.search(r"'{\w+}'", text), path
        assert text == text.strip(), path
    flows = [document["config"], document["options"], *document["config_subentries"].values()]
    for step in (step for flow in flows for step in flow["step"].values()):
        assert step.get("data_description", {}).keys() <= step.get("data", {}).keys()
        assert step.get("title") != read("manifest.json")["name"]


def test_config_entries_are_typed() -> None:
    """Functions of the core that take our entry name its type, as strict typing of runtime data demands."""
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("async_"):
                for one in node.args.args:
                    if one.arg in ("entry", "config_entry") and one.annotation is not None:
                        assert ast.unparse(one.annotation) == "AforesaidConfigEntry", (path, node.name)


def test_actions_are_described() -> None:
    services = yaml.safe_load((FOLDER / "services.yaml").read_text())
    texts = read("translations/en.json")["services"]
    assert services.keys() == texts.keys() == read("icons.json")["services"].keys()
    for name, service in services.items():
        assert service["fields"].keys() == texts[name]["fields"].keys()


def test_every_translation_key_in_the_code_exists() -> None:
    texts = read("translations/en.json")
    known = {
        *texts["exceptions"],
        *texts["issues"],
        *texts["selector"],
        *texts["entity"]["sensor"],
        "remembering",
    }
    used = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "translation_key":
                used |= {node.value.value} if isinstance(node.value, ast.Constant) else set()
    assert used
    assert used <= known


def test_the_quality_scale() -> None:
    rules = yaml.safe_load((FOLDER / "quality_scale.yaml").read_text())["rules"]
    core = Path(__import__("homeassistant").__file__).parent / "components" / "anthropic"
    platinum = yaml.safe_load((core / "quality_scale.yaml").read_text())["rules"]
    assert rules.keys() == platinum.keys()
    for name, rule in rules.items():
        assert rule == "done" or (rule["status"] == "exempt" and rule["comment"].strip()), name


@pytest.mark.parametrize(("name", "size"), [("icon", 256), ("icon@2x", 512), ("logo", 256), ("logo@2x", 512)])
def test_brand_images(name: str, size: int) -> None:
    with Image.open(FOLDER / "brand" / f"{name}.png") as image:
        assert image.format == "PNG"
        assert image.size == (size, size)


def test_only_our_package_is_required() -> None:
    """Imports are the standard library, Home Assistant with its own requirements, and Aforesaid."""
    allowed = {"homeassistant", "aforesaid", "probatio", "orjson", "msgspec"}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                assert top in allowed or top in __import__("sys").stdlib_module_names, (path.name, name)


def test_types() -> None:
    from mypy import api

    arguments = [
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        "/dev/null",
        "-p",
        "custom_components.aforesaid",
    ]
    output, errors, status = api.run(arguments)
    assert status == 0, output + errors
