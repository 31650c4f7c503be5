"""Agents that answer with a conversation's memory.

    AgenticLoop       asks an agent, runs its tool calls and asks again until it answers
    AnthropicAgent, OpenAIChatAgent, OpenAIResponsesAgent, StrandsAgent
                      models behind providers; each SDK is imported when first needed
    answer_turn       runs the loop in a conversation and stores the whole turn
    tool, Tool, ToolRegistry
                      tools: plain functions, or with a JSON schema
    TurnProgress      what a running turn has done; takes interruptions
    RecallAgent       answers from the owner's history without a model
    AgentSummarizer   summarizes messages outside the window with a model
    SupervisorAgent   routes each query to one of several specialists
    Assistants, assistant_for
                      the assistant from the settings
    ConversationEntity
                      an assistant with the interface of Home Assistant's conversation entity

To write an agent, implement the methods of `aforesaid.contracts.Agent`.
"""

from aforesaid.agents.configured import Assistants, agent_for, assistant_for
from aforesaid.agents.entity import (
    ConversationEntity,
    ConversationInput,
    ConversationResult,
    InputContext,
    IntentResponse,
)
from aforesaid.agents.loop import AgenticLoop, Answer
from aforesaid.agents.progress import TurnProgress
from aforesaid.agents.providers.anthropic import AnthropicAgent
from aforesaid.agents.providers.openai import OpenAIChatAgent, OpenAIResponsesAgent
from aforesaid.agents.providers.strands import StrandsAgent
from aforesaid.agents.recall import RecallAgent
from aforesaid.agents.routing import ModelRouter, Router, RuleRouter
from aforesaid.agents.stored_turns import answer_turn
from aforesaid.agents.supervisor import Apology, SupervisorAgent, apology_for
from aforesaid.agents.tools import Tool, ToolRegistry, tool
from aforesaid.agents.views import Specialist
from aforesaid.summaries.summarizers import AgentSummarizer

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
    "Tool",
    "ToolRegistry",
    "TurnProgress",
    "agent_for",
    "answer_turn",
    "apology_for",
    "assistant_for",
    "tool",
]
