"""Every correctness property that is claimed has a test that carries its number, and the other way round."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TAG = re.compile(r"# Feature: conversation-context, Property (\d+): (.+)")

PROPERTIES = {
    1: "Cross-channel message storage",
    2: "Cross-channel context access",
    3: "Equal treatment of messages",
    4: "Cross-session persistence",
    5: "Client association storage",
    6: "Message structure validation",
    7: "JSONB array storage",
    8: "Optional metadata support",
    9: "Chronological message ordering",
    10: "Content preservation",
    11: "Session initialization with history",
    12: "Context window limiting",
    13: "Multi-session continuity",
    14: "Context provision to agents",
    15: "Client query retrieval",
    16: "Separate conversations per client",
    17: "Metadata initialization",
    18: "Status value validation",
    19: "Priority value validation",
    20: "Metadata updates on message addition",
    21: "Tag array storage",
    22: "Voice transcription storage",
    23: "Text message storage",
    24: "Session-to-conversation mapping",
    25: "Pagination support",
    26: "Search by multiple criteria",
    27: "Search result structure",
    28: "JSONB content search",
    29: "Search result ranking",
    30: "Search filtering",
    31: "Agent-specific context filtering",
    32: "Agent tracking in messages",
    33: "Dual context maintenance",
}
POSTGRES_ONLY = {7}
ON_EVERY_STORE = re.compile(TAG.pattern + r"\n(?:#.*\n|@pytest.*\n)*@for_all\(")


def test_every_property_has_its_test_and_every_tag_its_property() -> None:
    tags = {
        (int(number), name.strip())
        for file in TESTS.rglob("test_*.py")
        for number, name in TAG.findall(file.read_text("utf-8"))
        if file != Path(__file__)
    }
    assert tags == set(PROPERTIES.items())


def test_every_property_has_a_test_with_all_examples_on_every_store() -> None:
    text = "\n".join(file.read_text("utf-8") for file in TESTS.rglob("test_*.py"))
    shown = {int(number) for number, _ in ON_EVERY_STORE.findall(text)}
    assert shown == PROPERTIES.keys() - POSTGRES_ONLY
