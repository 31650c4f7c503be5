"""Let the program of the how-to page run with a scripted model."""

from typing import Any

from agents.models.multi_provider import MultiProvider

from tests.adapters.openai_agents.test_openai_agents import Scripted, text


def _model(*_: Any) -> Scripted:
    return Scripted(text("San Francisco."))


MultiProvider.get_model = _model
