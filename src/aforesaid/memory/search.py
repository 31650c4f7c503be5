"""Search one owner's messages and conversations.

Search modules are imported at the first search, because they are slow to import.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from aforesaid._internal.arguments import zone_named
from aforesaid.contracts import audit_action
from aforesaid.intake.messages import Intake
from aforesaid.model.conversations import Channel, Status
from aforesaid.model.messages import Role
from aforesaid.settings import ConversationConfig
from aforesaid.telemetry import events
from aforesaid.telemetry.events import watched_method
from aforesaid.tokens import ready

if TYPE_CHECKING:
    from aforesaid.analytics.usage import UsageLog
    from aforesaid.search.conversations import FoundConversation
    from aforesaid.search.queries import SearchQuery
    from aforesaid.search.searcher import Budget, Findings, Searcher


class Search:
    """One owner's searches."""

    def __init__(
        self, searcher: "Searcher", intake: Intake, config: ConversationConfig, usage: "UsageLog"
    ) -> None:
        self.searcher = searcher
        self._usage = usage
        self.intake = intake
        self.config = config

    async def search_history(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        min_relevance: float | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> list[str]:
        """Return snippets about a topic that a model can cite, best first.

        Each snippet names speaker, time and place, and quotes. An empty query returns the latest messages
        that match the filters. The list is empty if nothing relevant was said: results below
        `min_relevance` are left out, by default 0.2; 0 returns every match. `search` returns the same as
        values.
        """
        from aforesaid.search.queries import parse_query

        asked = parse_query(
            query,
            max_results,
            role=role,
            date_from=date_from,
            date_to=date_to,
            tag=tag,
            channel=channel,
            max_tokens=max_tokens,
            min_relevance=min_relevance,
            explain=explain,
            timezone=timezone,
        )
        findings: Findings = await self._measured_search(asked)
        return findings.render()

    async def search(
        self,
        query: str = "",
        max_results: int = 5,
        *,
        role: Role | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        tag: str | None = None,
        channel: Channel | None = None,
        max_tokens: int | None = None,
        min_relevance: float | None = None,
        explain: bool = False,
        timezone: tzinfo | None = None,
    ) -> "Findings":
        """Return passages with their relevance from 0 to 1 and, with `explain`, the parts of each score.

        `max_tokens` limits all snippets together. Times are shown in `timezone`, by default this machine's.
        """
        from aforesaid.search.queries import parse_query

        asked = parse_query(
            query,
            max_results,
            role=role,
            date_from=date_from,
            date_to=date_to,
            tag=tag,
            channel=channel,
            max_tokens=max_tokens,
            min_relevance=min_relevance,
            explain=explain,
            timezone=timezone,
        )
        return await self._search(asked)

    async def _search(self, query: "SearchQuery") -> "Findings":
        found = await self.searcher.search(
            query.question,
            filters=query.filters,
            budget=await self._budget(query),
            min_relevance=query.min_relevance,
            explain=query.explain,
            zone=query.timezone,
        )
        await audit_action(self.searcher.store, "search", count=len(found.passages))
        by = "time" if not query.question else "meaning" if found.by_meaning else "words"
        events.searched(by, len(found.passages), query=query.question, degraded=found.degraded)
        if query.question:
            self._usage.searched(self.searcher.store, [one.text for one in found.passages])
        return found

    # Dashboards and alerts select `call="search"`, so searches inside `search_history` count there as well.
    # The manager measures its own `search`; measuring `_search` itself would count those twice.
    _measured_search = watched_method("search", _search)

    async def _budget(self, query: "SearchQuery") -> "Budget":
        from aforesaid.search.searcher import Budget

        if query.max_tokens is None:
            return Budget(results=query.max_results)
        counter = self.intake.counter
        await ready(counter)
        return Budget(results=query.max_results, tokens=query.max_tokens, count=counter.count_text)

    async def search_conversations(
        self,
        query: str | None = None,
        client_id: str | None = None,
        status: Status | None = None,
        date_from: datetime | str | None = None,
        date_to: datetime | str | None = None,
        limit: int | None = None,
        *,
        tags: Sequence[str] | None = None,
        timezone: tzinfo | None = None,
    ) -> "list[FoundConversation]":
        """Find conversations by client name, subject or content that match all filters.

        They are ordered by relevance, then by time, latest first. `limit` defaults to the setting
        `search_limit`. Dates refer to the last activity, as in `list`. A date without a zone is in
        `timezone`, by default the setting `timezone`.
        """
        from aforesaid.search.conversations import search_conversations
        from aforesaid.search.queries import local_zone, parse_conversation_filters, parse_question

        if timezone is None and self.config.timezone:
            timezone = await asyncio.to_thread(zone_named, self.config.timezone)
        zone = local_zone(timezone)
        filters = parse_conversation_filters(
            client_id=client_id,
            status=status,
            tags=tags,
            date_from=date_from,
            date_to=date_to,
            limit=self.config.search_limit if limit is None else limit,
            zone=zone,
        )
        question, latest = parse_question(query), self.config.context_window_size
        found = await search_conversations(self.searcher, question, filters, latest=latest, zone=zone)
        await audit_action(self.searcher.store, "search", count=len(found))
        events.searched("conversations", len(found), query=question)
        return found

    async def similar(self, conversation_id: str, limit: int = 5) -> "list[FoundConversation]":
        """Return other conversations about the same topics, most similar first."""
        from aforesaid.search.conversations import similar_conversations
        from aforesaid.search.queries import parse_limit

        parse_limit(limit, field="limit")
        found = await similar_conversations(
            self.searcher, conversation_id, limit=limit, latest=self.config.context_window_size
        )
        await audit_action(self.searcher.store, "search", conversation_id, count=len(found))
        events.searched("likeness", len(found))
        return found
