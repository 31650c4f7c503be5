"""A real `AgentSession` whose model and voice are scripted: a turn, an interruption, a restart."""

import asyncio
import time
from pathlib import Path
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, llm, tts
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities

from aforesaid.adapters.livekit import AforesaidHistory
from aforesaid.memory.interface import ManagerProtocol
from aforesaid.testing.validity import problems
from aforesaid.windows import WindowPolicy
from tests.adapters.checks import memory_in

NAME = "livekit/room 7"
RATE = 24000
BOUND = 120


class ScriptedModel(llm.LLM):
    """Give the answers of a script, and keep what was asked."""

    def __init__(self, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)
        self.requests: list[list[str]] = []

    def chat(self, *, chat_ctx: Any, tools: Any = None, conn_options: Any = None, **_: Any) -> Any:
        self.requests.append([item.text_content for item in chat_ctx.items if item.type == "message"])
        options = conn_options or DEFAULT_API_CONNECT_OPTIONS
        return _Answer(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=options)


class _Answer(llm.LLMStream):
    async def _run(self) -> None:
        delta = llm.ChoiceDelta(role="assistant", content=self._llm.answers.pop(0))
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


async def session_of(history: AforesaidHistory, model: ScriptedModel) -> tuple[AgentSession, Speaker]:
    """Start a session as a program does: with the stored context, and the history attached."""
    session: AgentSession = AgentSession(llm=model, tts=Voice())
    speaker = Speaker()
    session.output.audio = speaker
    history.attach(session)
    await session.start(Agent(instructions="Be brief.", chat_ctx=await history.load()))
    return session, speaker


async def said_in(manager: ManagerProtocol) -> list[str]:
    """Return what was said: the session also stores changes of its configuration, which have no words."""
    return [str(one.content) for one in await manager.messages(NAME) if one.role != "system"]


async def test_an_interrupted_answer_is_continued_after_a_restart(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        history = AforesaidHistory("room 7", memory.of("kim"))
        model = ScriptedModel("Lima.", "There is a rake behind the door of the shed.")
        session, speaker = await session_of(history, model)
        async with asyncio.timeout(BOUND):
            await session.run(user_input="What is the capital of Peru?")
            speaker.heard = "There is a"
            answer = session.generate_reply(user_input="What is in the shed?")
            await speaker.plays.wait()
            await session.interrupt()
            await answer
        await history.flush()
        await session.aclose()
    async with memory_in(tmp_path) as memory:
        kim = memory.of("kim")
        stored = await said_in(kim)
        cut = (await kim.messages(NAME))[-1].speech
        request = await kim.load_request(NAME, "anthropic", policy=WindowPolicy(max_turns=9))
        model = ScriptedModel("A rake.")
        history = AforesaidHistory("room 7", kim)
        session, _ = await session_of(history, model)
        async with asyncio.timeout(BOUND):
            await session.run(user_input="Go on.")
        await history.flush()
        await session.aclose()
        again = await said_in(kim)
    said = ["What is the capital of Peru?", "Lima.", "What is in the shed?", "There is a"]
    assert stored == said
    assert problems(request, "anthropic") == []
    assert cut is not None
    assert (cut.interrupted, cut.words_heard) == (True, "There is a")
    assert [text for text in model.requests[0] if "Be brief" not in text] == [*said, "Go on."]
    assert again == [*said, "Go on.", "A rake."]
