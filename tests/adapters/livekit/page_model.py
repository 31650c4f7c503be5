"""Let the program of the how-to page run with a scripted model."""

from livekit.agents import inference

from tests.adapters.livekit.scripted import ScriptedModel

inference.llm_from_model_string = lambda _: ScriptedModel("Hello!")
