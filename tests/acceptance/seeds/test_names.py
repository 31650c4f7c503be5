"""Every name that the design documents import is in `aforesaid.compat`."""

import pytest

from aforesaid import compat

DOCUMENTED = (
    "AgenticLoop",
    "ChatterboxConversationEntity",
    "ClientAssociationService",
    "ContextWindow",
    "ConversationCache",
    "ConversationConfig",
    "ConversationInput",
    "ConversationManager",
    "ConversationMemoryManager",
    "ConversationResult",
    "ConversationStore",
    "ConversationWindow",
    "S2SSessionManager",
    "SupervisorAgent",
    "ToolRegistry",
)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_name_is_exported(name: str) -> None:
    assert name in compat.__all__
    assert getattr(compat, name).__doc__


def test_names_are_sorted() -> None:
    assert compat.__all__ == sorted(compat.__all__)
