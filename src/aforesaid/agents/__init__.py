"""Agents: whoever answers, with the conversation's memory behind it. Below: manager, tools, dialects.

    AgenticLoop       asks an agent, runs its tools, asks again, until there is an answer
    AnthropicAgent, OpenAIChatAgent, OpenAIResponsesAgent, StrandsAgent
                      models behind providers, each through its own SDK, loaded when first needed
    answer_turn       the loop in a conversation: what the agent sees, and the turn stored whole
    RecallAgent       answers from the owner's own history, without a model
    AgentSummarizer   summaries of what a window no longer shows, by a model
    SupervisorAgent   several specialists, one voice
    Assistants, assistant_for
                      the assistant that the settings name
    ConversationEntity
                      the same with the shape of Home Assistant's conversation entity

An agent of your own is any class with the methods of `aforesaid.contracts.Agent`.
"""

from aforesaid.agents.apologies import apology_for
from aforesaid.agents.configured import Assistants, agent_for, assistant_for
from aforesaid.agents.entity import (
    ConversationEntity,
    ConversationInput,
    ConversationResult,
    InputContext,
    IntentResponse,
)
from aforesaid.agents.loop import AgenticLoop, Answer
from aforesaid.agents.providers.anthropic import AnthropicAgent
from aforesaid.agents.providers.openai_chat import OpenAIChatAgent
from aforesaid.agents.providers.openai_responses import OpenAIResponsesAgent
from aforesaid.agents.providers.strands import StrandsAgent
from aforesaid.agents.recall import RecallAgent
from aforesaid.agents.routing import ModelRouter, Router, RuleRouter
from aforesaid.agents.stored_turns import Specialist, answer_turn
from aforesaid.agents.summarizer import AgentSummarizer
from aforesaid.agents.supervisor import Apology, SupervisorAgent

__all__ = [
    "AgentSummarizer",
    "AgenticLoop",
    "Answer",
    "AnthropicAgent",
    "Apology",
    "Assistants",
    "ConversationEntity",
    "ConversationInput",
    "ConversationResult",
    "InputContext",
    "IntentResponse",
    "ModelRouter",
    "OpenAIChatAgent",
    "OpenAIResponsesAgent",
    "RecallAgent",
    "Router",
    "RuleRouter",
    "Specialist",
    "StrandsAgent",
    "SupervisorAgent",
    "agent_for",
    "answer_turn",
    "apology_for",
    "assistant_for",
]
