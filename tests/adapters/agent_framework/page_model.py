"""Let the program of the how-to page run with a scripted model."""

import sys
from types import ModuleType

from agent_framework import Content

from tests.adapters.agent_framework.test_agent_framework import Scripted

# The package of the provider is not installed: the program imports this module in its place.
provider = ModuleType("agent_framework.openai")
provider.OpenAIChatClient = lambda: Scripted(Content.from_text("Paris."))  # type: ignore[attr-defined]
sys.modules["agent_framework.openai"] = provider
