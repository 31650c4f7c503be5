"""A real `AgentSession` whose model and voice are scripted."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, function_tool, llm, tts
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities

from aforesaid.adapters.livekit import AforesaidHistory

RATE = 24000
BOUND = 120


class ScriptedModel(llm.LLM):
    """Give the answers of a script, texts or tool calls, and keep what was asked."""

    def __init__(
        self, *answers: str | llm.FunctionToolCall, before: Callable[[], Any] = lambda: None
    ) -> None:
        super().__init__()
        self.answers = list(answers)
        self.before = before
        self.requests: list[list[str]] = []

    def chat(self, *, chat_ctx: Any, tools: Any = None, conn_options: Any = None, **_: Any) -> Any:
        self.requests.append([item.text_content for item in chat_ctx.items if item.type == "message"])
        options = conn_options or DEFAULT_API_CONNECT_OPTIONS
        return _Answer(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=options)


class _Answer(llm.LLMStream):
    async def _run(self) -> None:
        self._llm.before()
        answer = self._llm.answers.pop(0)
        said = {"content": answer} if isinstance(answer, str) else {"tool_calls": [answer]}
        delta = llm.ChoiceDelta(role="assistant", **said)
        self._event_ch.send_nowait(llm.ChatChunk(id="answer", delta=delta))


class Voice(tts.TTS):
    """Speak silence."""

    def __init__(self) -> None:
        capabilities = tts.TTSCapabilities(streaming=False)
        super().__init__(capabilities=capabilities, sample_rate=RATE, num_channels=1)

    def synthesize(self, text: str, *, conn_options: Any = DEFAULT_API_CONNECT_OPTIONS) -> Any:
        return _Silence(tts=self, input_text=text, conn_options=conn_options)


class _Silence(tts.ChunkedStream):
    async def _run(self, output_emitter: Any) -> None:
        output_emitter.initialize(
            request_id="silence", sample_rate=RATE, num_channels=1, mime_type="audio/pcm"
        )
        output_emitter.push(bytes(RATE))
        output_emitter.flush()


class Speaker(AudioOutput):
    """Play at once, or, with `heard`, play until the user interrupts, who has heard these words."""

    def __init__(self) -> None:
        super().__init__(label="speaker", capabilities=AudioOutputCapabilities(pause=False), sample_rate=RATE)
        self.heard: str | None = None
        self.plays = asyncio.Event()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self.plays.is_set():
            self.plays.set()
            self.on_playback_started(created_at=time.time())

    def flush(self) -> None:
        super().flush()
        if self.plays.is_set() and self.heard is None:
            self.plays.clear()
            self.on_playback_finished(playback_position=1.0, interrupted=False)

    def clear_buffer(self) -> None:
        if self.plays.is_set():
            self.plays.clear()
            self.on_playback_finished(
                playback_position=0.5, interrupted=True, synchronized_transcript=self.heard
            )


@function_tool
async def look(where: str) -> str:
    """Look somewhere."""
    return f"a rake in the {where}"


async def session_of(history: AforesaidHistory, model: ScriptedModel) -> tuple[AgentSession, Speaker]:
    """Start a session as a program does: with the stored context, and the history attached."""
    session: AgentSession = AgentSession(llm=model, tts=Voice())
    speaker = Speaker()
    session.output.audio = speaker
    history.attach(session)
    await session.start(Agent(instructions="Be brief.", chat_ctx=await history.load(), tools=[look]))
    return session, speaker
