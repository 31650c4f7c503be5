"""Build the assistant from the settings, for the terminal, the server and voice.

Without a provider, the recall agent answers; it needs no model.
"""

import os
from collections.abc import Callable
from datetime import tzinfo

from aforesaid._internal.arguments import validated
from aforesaid.agents.loop import AgenticLoop
from aforesaid.agents.providers.anthropic import AnthropicAgent
from aforesaid.agents.providers.openai import OpenAIChatAgent, OpenAIResponsesAgent
from aforesaid.agents.providers.strands import StrandsAgent
from aforesaid.agents.recall import RecallAgent
from aforesaid.agents.supervisor import Sessions, SupervisorAgent
from aforesaid.agents.toolbox import owner_tools
from aforesaid.agents.views import Specialist
from aforesaid.contracts import Agent
from aforesaid.errors import InvalidSetting
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.model.clock import Clock
from aforesaid.model.conversations import Channel
from aforesaid.settings import AgentConfig

INSTRUCTIONS = (
    "You are a helpful assistant with a memory. Answer briefly, in the language of the question. When the "
    "user refers to something that is not in this conversation, look it up with search_history before you "
    "answer, and give the date of what you cite. Use remember for preferences and facts that will matter "
    "later, and forget when they no longer hold."
)


@validated
class Assistants:
    """Assistants for all owners over one shared provider connection. Call `close` at the end."""

    def __init__(
        self,
        config: AgentConfig | None = None,
        *,
        timezone: tzinfo | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config or AgentConfig()
        self._timezone = timezone
        self._clock = clock
        self._agent = agent_for(self.config)

    @property
    def uses_model(self) -> bool:
        """Whether a provider's model answers instead of the recall agent."""
        return self._agent is not None

    def of(
        self, manager: ManagerProtocol, *, sessions: Sessions | None = None, channel: Channel = "text"
    ) -> SupervisorAgent:
        """Return the assistant of the manager's owner."""
        return SupervisorAgent(manager, [self.specialist(manager)], sessions=sessions, channel=channel)

    def specialist(self, manager: ManagerProtocol) -> Specialist:
        """Return the specialist that answers, with the tools of the manager's owner."""
        # The recall agent reads one owner's history, so it cannot be shared as a model is.
        agent = self._agent or RecallAgent(manager, timezone=self._timezone, clock=self._clock)
        instructions = (self.config.instructions or INSTRUCTIONS) if self._agent is not None else ""
        return Specialist(
            loop=AgenticLoop(agent, instructions=instructions),
            description="Answers questions",
            tools=owner_tools(manager, timezone=self._timezone),
        )

    async def close(self) -> None:
        if self._agent is not None:
            await self._agent.close()


@validated
def assistant_for(
    manager: ManagerProtocol,
    config: AgentConfig | None = None,
    *,
    sessions: Sessions | None = None,
    channel: Channel = "text",
) -> SupervisorAgent:
    """Return one owner's assistant from the settings. Use `Assistants` for many owners or to close the
    connection.
    """
    return Assistants(config).of(manager, sessions=sessions, channel=channel)


@validated
def agent_for(config: AgentConfig) -> Agent | None:
    """Return the agent from the settings, or None when no model is configured. Raises `MissingExtra`."""
    if config.provider == "recall":
        return None
    if not config.model:
        raise InvalidSetting(
            f"the provider {config.provider} needs a model: set AFORESAID_MODEL", field="model", value=""
        )
    _check_key(config)
    return _FACTORIES[config.provider](config)


# The variables in which a provider's SDK finds its key. Bedrock has many other sources.
_KEY_VARIABLES = {
    "anthropic": (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_IDENTITY_TOKEN_FILE",
        "ANTHROPIC_CONFIG_DIR",
    ),
    "openai": ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
    "openai_responses": ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"),
}


def _check_key(config: AgentConfig) -> None:
    """Raise `InvalidSetting` without an API key. A server at another URL may need none."""
    variables = _KEY_VARIABLES.get(config.provider)
    if variables is None or config.provider_key or config.provider_url:
        return
    if not any(os.environ.get(name) for name in variables):
        raise InvalidSetting(
            f"the provider {config.provider} needs an API key: set {variables[0]} or AFORESAID_PROVIDER_KEY",
            field=variables[0],
        )


def _anthropic(config: AgentConfig) -> Agent:
    return AnthropicAgent(
        config.model, api_key=config.provider_key or None, base_url=config.provider_url or None
    )


def _openai(config: AgentConfig) -> Agent:
    return OpenAIChatAgent(
        config.model,
        api_key=config.provider_key or None,
        base_url=config.provider_url or None,
        api_version=config.provider_api_version or None,
    )


def _openai_responses(config: AgentConfig) -> Agent:
    return OpenAIResponsesAgent(
        config.model,
        api_key=config.provider_key or None,
        base_url=config.provider_url or None,
        api_version=config.provider_api_version or None,
    )


def _bedrock(config: AgentConfig) -> Agent:
    def model() -> object:
        from strands.models import BedrockModel

        return BedrockModel(model_id=config.model, endpoint_url=config.provider_url or None)

    return StrandsAgent(model, provider="Bedrock", model_id=config.model)


_FACTORIES: dict[str, Callable[[AgentConfig], Agent]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "openai_responses": _openai_responses,
    "bedrock": _bedrock,
}
