"""Store what every agent says, also the built-in one, without wrapping it.

The core announces changes of a chat log while a turn runs, but not the end of the first turn. A turn is over
when its trace has a result. A sentence that a pipeline handles itself has no trace; it is over when the core
puts the log into its table. A log that never gets there belongs to a failed turn.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getclosurevars
from typing import Any
from weakref import ref

from homeassistant.components import conversation
from homeassistant.components.conversation import trace
from homeassistant.components.conversation.chat_log import (
    DATA_CHAT_LOGS,
    async_subscribe_chat_logs,
    current_chat_log,
)
from homeassistant.components.conversation.const import ChatLogEventType
from homeassistant.core import Context, HomeAssistant, callback
from homeassistant.helpers import intent

from .contents import last_turn, mark_stored, messages_of
from .history import Channel, History
from .options import Options
from .owners import owner_of

log = logging.getLogger(__name__)

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.25
"""Seconds between two looks at a running turn."""
LONGEST_TURN = 600.0
"""Seconds after which a turn without an end counts as failed."""

_HANDLED = "_aforesaid_handled"
_NAME = "_aforesaid_name"


@callback
def mark_handled(chat_log: conversation.ChatLog) -> None:
    """Note that a remembering agent stores this turn."""
    setattr(chat_log, _HANDLED, True)


@callback
def mark_continues(chat_log: conversation.ChatLog, name: str) -> None:
    """Note the conversation that this turn continues. It is stored even if nothing else is recorded."""
    setattr(chat_log, _NAME, name)


@callback
def is_handled(chat_log: conversation.ChatLog) -> bool:
    """Return whether a remembering agent stores this turn."""
    return bool(getattr(chat_log, _HANDLED, False))


@dataclass(frozen=True)
class Speaker:
    """Where a turn comes from."""

    owner: str
    channel: Channel


class Recorder:
    """The turns in progress of one entry."""

    def __init__(self, hass: HomeAssistant, history: History, options: Options) -> None:
        self._hass = hass
        self._history = history
        self._options = options
        self._turns: dict[int, _Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, create_task: Callable[..., asyncio.Task[None]]) -> Callable[[], None]:
        """Observe all chat logs; return the function that ends it."""
        self._create_task = create_task
        return async_subscribe_chat_logs(self._hass, self._notice)

    @callback
    def _notice(self, conversation_id: str, event: ChatLogEventType, data: dict[str, Any]) -> None:
        chat_log = current_chat_log.get()
        if chat_log is None or chat_log.conversation_id != conversation_id or id(chat_log) in self._turns:
            return
        speaker = self._speaker(chat_log)
        if speaker is None:
            return  # an AI task, or an origin that is unknown: without an owner nothing is stored
        turn = _Turn(chat_log, speaker, trace._current_trace.get())
        self._turns[id(chat_log)] = turn
        # In an empty context: the current one holds the log, which must go when the turn fails.
        task = contextvars.Context().run(
            self._create_task, self._follow(id(chat_log), turn), "aforesaid-record"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, key: int, turn: "_Turn") -> None:
        """Wait for the end of the turn, and store it."""
        pause, waited = 0.0, 0.0
        try:
            while turn.log() is not None and not turn.failed and waited < LONGEST_TURN:
                if turn.is_over(self._hass):
                    await self._store(turn)
                    return
                await asyncio.sleep(pause)
                waited += pause
                pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, pause * 2))
        finally:
            self._turns.pop(key, None)

    async def close(self) -> None:
        """Store the turns that are over, and drop the others."""
        turns = list(self._turns.values())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for turn in turns:
            if turn.is_over(self._hass):
                await self._store(turn)

    async def settled(self) -> None:
        """Wait until no finished turn is waiting to be stored."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _store(self, turn: "_Turn") -> None:
        chat_log = turn.log()
        if chat_log is None or turn.failed or is_handled(chat_log):
            return
        name: str | None = getattr(chat_log, _NAME, None)
        if name is None and not self._options.record:
            return
        new = last_turn(chat_log.content)
        messages = messages_of(new, chat_log.conversation_id)
        if not messages:
            return
        speaker = turn.speaker
        await self._history.store(speaker.owner, name or chat_log.conversation_id, messages, speaker.channel)
        # Afterwards: a cancelled attempt is repeated, with the same ids.
        mark_stored(new, speaker.owner)

    @callback
    def _speaker(self, chat_log: conversation.ChatLog) -> Speaker | None:
        origin = _traced_origin() or _pipeline_origin(chat_log)
        if origin is None:
            return None
        context, device_id, satellite_id = origin
        is_voice = device_id is not None or satellite_id is not None
        return Speaker(
            owner_of(self._hass, self._options, context, device_id, satellite_id),
            "voice" if is_voice else "text",
        )


class _Turn:
    """A turn in progress. It holds its log weakly, so that the log of a failed turn can go."""

    def __init__(
        self, chat_log: conversation.ChatLog, speaker: Speaker, traced: trace.ConversationTrace | None
    ) -> None:
        self.log = ref(chat_log)
        self.speaker = speaker
        self._id = chat_log.conversation_id
        self._trace = traced

    def is_over(self, hass: HomeAssistant) -> bool:
        """Return whether the agent has answered, or the core has taken the log into its table.

        A later turn may have replaced the log there; it continues with the same contents.
        """
        chat_log = self.log()
        if chat_log is None or (self._trace is not None and self._trace._result):
            return chat_log is not None
        kept = hass.data.get(DATA_CHAT_LOGS, {}).get(self._id)
        return kept is not None and any(content is chat_log.content[-1] for content in kept.content)

    @property
    def failed(self) -> bool:
        """Whether the agent raised, or answered with an error."""
        if self._trace is None:
            return False
        if self._trace._error is not None:
            return True
        response = self._trace._result.get("response", {})
        return bool(response.get("response_type") == intent.IntentResponseType.ERROR.value)


Origin = tuple[Context | None, str | None, str | None]


@callback
def _traced_origin() -> Origin | None:
    """Return user, device and satellite from the core's trace of a request to an agent."""
    current = trace._current_trace.get()
    if current is None:
        return None
    for event in current._events:  # `as_dict` would copy the whole conversation
        data = event.data or {}
        if event.event_type is trace.ConversationTraceEventType.ASYNC_PROCESS:
            return data.get("context"), data.get("device_id"), data.get("satellite_id")
    return None


@callback
def _pipeline_origin(chat_log: conversation.ChatLog) -> Origin | None:
    """Return user, device and satellite of a pipeline that handles a sentence locally, without an agent.

    The pipeline passes them to no agent; the listener of the log is the only reference to it.
    """
    if chat_log.delta_listener is None:
        return None
    try:
        run = getclosurevars(chat_log.delta_listener).nonlocals.get("self")
    except TypeError:
        return None
    host = getattr(run, "host", run)
    context = getattr(host, "context", None)
    if not isinstance(context, Context):
        return None
    return context, getattr(host, "device_id", None), getattr(host, "satellite_id", None)
