"""Routers choose the agent that answers: by rule or with a model."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from aforesaid._internal.arguments import validated
from aforesaid.agents.tools import Tool, ToolRegistry, validate_arguments
from aforesaid.contracts import Agent, Ask, Reply
from aforesaid.dialects import meaning_of
from aforesaid.errors import InvalidInput, shown
from aforesaid.model.messages import Message
from aforesaid.telemetry import describe

log = logging.getLogger("aforesaid.agents")

Recent = Callable[[], Awaitable[Sequence[Message]]]
"""Loads the conversation so far, ending with the question. Rules do not need it and do not pay for it."""


class Router(Protocol):
    """Chooses one of several agents."""

    async def choose(self, query: str, recent: Recent, agents: Mapping[str, str]) -> str | None:
        """Return the name of one agent, or None for the default. `agents` maps names to descriptions."""
        ...


@validated
class RuleRouter:
    """Chooses by regular expressions, searched case-insensitively in the query. The first match wins."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._rules = [(_pattern(pattern), name) for pattern, name in rules.items()]

    async def choose(self, query: str, recent: Recent, agents: Mapping[str, str]) -> str | None:
        return next((name for pattern, name in self._rules if pattern.search(query)), None)


@validated
class ModelRouter:
    """Lets a model choose by the agents' descriptions. An error or an unknown name chooses none."""

    def __init__(self, agent: Agent, *, instructions: str = "") -> None:
        self._agent = agent
        self._instructions = instructions or _INSTRUCTIONS

    async def choose(self, query: str, recent: Recent, agents: Mapping[str, str]) -> str | None:
        tool = _route_to(agents)
        definitions = ToolRegistry([tool]).definitions(self._agent.dialect)
        lines = [f"- {name}: {description}" for name, description in agents.items()]
        messages = await recent()
        last = last_agent(reversed(messages))
        if last in agents:
            lines.append(f"{last} answered last. A follow-up to that answer is for {last}, too.")
        ask = Ask(
            messages=_words_only(messages),
            system="\n".join([self._instructions, *lines]),
            tools=tuple(definitions),
        )
        try:
            return _chosen(await self._agent.reply(ask), tool, agents)
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything; fall back to the default
            log.warning("the router failed: %s", describe(error))
            return None


_INSTRUCTIONS = (
    "You decide which agent answers the user's last message. Do not answer it yourself: "
    "call route_to with the name of the agent. The agents:"
)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise InvalidInput(
            f"a rule must be a regular expression ({error}); got {shown(text)}", field="rules", value=text
        ) from None


def _route_to(agents: Mapping[str, str]) -> Tool:
    async def run(agent_name: str) -> str:
        return agent_name

    return Tool(
        name="route_to",
        description="Choose the agent that answers.",
        parameters={
            "type": "object",
            "properties": {"agent_name": {"type": "string", "enum": list(agents)}},
            "required": ["agent_name"],
            "additionalProperties": False,
        },
        run=run,
    )


def _words_only(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return only the texts of users and assistants: this model does not have the conversation's tools."""
    texts = [(message.role, meaning_of(message).text.strip()) for message in messages]
    return tuple(
        Message(role=role, content=text) for role, text in texts if text and role in ("user", "assistant")
    )


def _chosen(reply: Reply, tool: Tool, agents: Mapping[str, str]) -> str | None:
    meanings = [meaning_of(message) for message in reply.messages]
    for call in (call for meaning in meanings for call in meaning.calls if call.name == tool.name):
        try:
            return str(validate_arguments(tool, call.arguments)["agent_name"])
        except InvalidInput as error:
            log.warning("the router's tool call is invalid: %s", describe(error))
    # A model without tools names the agent in words.
    words = " ".join(meaning.text for meaning in meanings)
    named = [name for name in agents if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", words)]
    return named[0] if len(named) == 1 else None


def last_agent(latest_first: Iterable[Message]) -> str | None:
    """Return the agent of the first answer in these messages."""
    names = (message.agent_name for message in latest_first if message.role == "assistant")
    return next((name for name in names if name is not None), None)
