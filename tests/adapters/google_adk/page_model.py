"""Let the program of the how-to page run with a scripted model."""

from google.adk.models.registry import LLMRegistry

from tests.adapters.google_adk.test_google_adk import Scripted

LLMRegistry.new_llm = staticmethod(lambda _: Scripted(answers=["Lima."]))
