"""Calls for contexts and requests. The signatures are the manager's."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from aforesaid.contexts import default_policy
from aforesaid.dialects import DialectName
from aforesaid.errors import StoreError
from aforesaid.model.contexts import Context, Report
from aforesaid.model.messages import Message
from aforesaid.protocol import (
    context_of,
    message_document,
)
from aforesaid.remote.calls import Call
from aforesaid.remote.requests.base import (
    Calls,
    conversation,
)
from aforesaid.tokens import Estimator, RoughCounter, characters_in
from aforesaid.windows import RequestParts, WindowPolicy, pending_window


class ContextCalls(Calls):
    """Calls for contexts and requests."""

    def load_context(
        self,
        conversation_id: str,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        for_request: bool = False,
    ) -> Call[Context]:
        wanted = self._effective_policy(policy, for_request=for_request)
        body = {
            "for_request": for_request,
            "agent_name": agent_name if self.config.enable_agent_filtering else None,
            **self._context_body(wanted, pending),
        }
        return self._call(
            "POST",
            "conversations",
            conversation(conversation_id),
            "context",
            read=context_of,
            body=body,
            deadline=float(self.config.context_deadline) or None,
            fallback=lambda error: self._degraded(
                conversation_id,
                wanted or default_policy(self.config, for_request=for_request),
                agent_name,
                pending,
                error,
            ),
        )

    def first_context(
        self, pending: Sequence[Message], *, policy: WindowPolicy | None = None
    ) -> Call[Context]:
        return self._call(
            "POST",
            "context",
            read=context_of,
            body=self._context_body(self._effective_policy(policy, for_request=True), pending),
        )

    def _context_body(self, policy: WindowPolicy | None, pending: Sequence[Message]) -> dict[str, Any]:
        return {
            "policy": None if policy is None else msgspec.to_builtins(policy),
            "pending": [message_document(message) for message in pending],
            "counter": None if self.counter is None else self.counter.name,
        }

    def _effective_policy(self, policy: WindowPolicy | None, *, for_request: bool) -> WindowPolicy | None:
        """Complete the policy from the caller's settings; without settings the server completes it."""
        config = self.client_config
        policy = policy or self.policy
        if config is None:
            return policy
        wanted = policy or default_policy(config, for_request=for_request)
        return (
            wanted if wanted.notes_tokens is not None else replace(wanted, notes_tokens=config.notes_tokens)
        )

    def _degraded(
        self,
        conversation_id: str,
        policy: WindowPolicy,
        agent_name: str | None,
        pending: Sequence[Message],
        error: StoreError,
    ) -> Context:
        """Return a window over the pending messages, the only ones available without the server."""
        if agent_name is not None and self.config.enable_agent_filtering:
            policy = replace(policy, agent_name=agent_name)
        context = pending_window(
            conversation_id, policy, cost=_estimated_tokens, pending=pending, now=datetime.now(UTC)
        )
        return context.with_report(_with_reason(context.report, str(error)))

    def load_request(
        self,
        conversation_id: str,
        dialect: DialectName,
        agent_name: str | None = None,
        *,
        policy: WindowPolicy | None = None,
        pending: Sequence[Message] = (),
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[Mapping[str, object]] = (),
        tool_choice: str | None = None,
    ) -> Call[dict[str, Any]]:
        parts = RequestParts(system=system, tools=tools, model=model, tool_choice=tool_choice)
        policy = policy or self.policy
        if policy is None and parts != RequestParts():
            # The server does not see these parts, so the client reserves tokens for them.
            policy = default_policy(self.config, for_request=True, model=model)
        if policy is not None:
            policy = parts.reserved_in(policy, self.counter or Estimator(RoughCounter()), dialect)
        context = self.load_context(
            conversation_id, agent_name, policy=policy, pending=pending, for_request=True
        )
        marks = policy is not None and policy.cache_marks
        return context.map(lambda loaded: parts.arguments(loaded, dialect, cache_marks=marks))


def _with_reason(report: Report, why: str) -> Report:
    nothing = None if report.nothing_to_send is None else why
    return replace(report, warnings=(why, *report.warnings), nothing_to_send=nothing, degraded=True)


def _estimated_tokens(message: Message) -> int:
    """Estimate tokens from above by characters; loading a token counter here would be slow."""
    return characters_in(message) // 2 + 8
