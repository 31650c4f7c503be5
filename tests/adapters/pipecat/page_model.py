"""Let the program of the how-to page run with a scripted model."""

import pipecat.services.openai.llm

from tests.adapters.pipecat.scripted import ScriptedModel

pipecat.services.openai.llm.OpenAILLMService = lambda **_: ScriptedModel("Hello!")
