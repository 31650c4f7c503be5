"""A real pipeline whose model and voice are scripted: a turn, an interruption, a restart."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings, TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from aforesaid.adapters.pipecat import AforesaidHistory
from tests.adapters.checks import memory_in

NAME = "pipecat/call 7"
RATE = 16000
BOUND = 120


class ScriptedModel(LLMService[Any]):
    """Give the answers of a script, and keep what was asked."""

    def __init__(self, *answers: str) -> None:
        # Pipecat reports settings that have no value, even None.
        absent = {field.name: None for field in fields(LLMSettings) if field.name not in ("model", "extra")}
        super().__init__(settings=LLMSettings(model="scripted", **absent))
        self.answers = list(answers)
        self.requests: list[list[str]] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        self.requests.append([str(one["content"]) for one in frame.context.get_messages()])
        await self.push_frame(LLMFullResponseStartFrame())
        await self.push_frame(LLMTextFrame(self.answers.pop(0)))
        await self.push_frame(LLMFullResponseEndFrame())


class Voice(TTSService):
    """Speak silence; a sentence with `endless` in it takes until the user interrupts."""

    def __init__(self) -> None:
        settings = TTSSettings(model="scripted", voice="silence", language=None)
        super().__init__(sample_rate=RATE, push_start_frame=True, push_stop_frames=True, settings=settings)
        self.speaks_endlessly = asyncio.Event()

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        if "endless" in text:
            self.speaks_endlessly.set()
            await asyncio.Event().wait()
        yield TTSAudioRawFrame(
            audio=bytes(RATE // 5), sample_rate=RATE, num_channels=1, context_id=context_id
        )


class Call:
    """A running pipeline."""

    def __init__(self, worker: PipelineWorker, voice: Voice) -> None:
        self.worker = worker
        self.voice = voice
        self.ended_turns: asyncio.Queue[Any] = asyncio.Queue()

    async def say(self, text: str) -> None:
        """Give a question of the user to the pipeline."""
        message: Any = {"role": "user", "content": text}
        await self.worker.queue_frame(LLMMessagesAppendFrame([message], run_llm=True))


@asynccontextmanager
async def call(history: AforesaidHistory, model: ScriptedModel) -> Any:
    """Run a pipeline as a program does: with the stored context, and the history attached."""
    context, voice = LLMContext(await history.load()), Voice()
    aggregators = LLMContextAggregatorPair(context)
    history.attach(aggregators.assistant(), context)
    worker = PipelineWorker(
        Pipeline([aggregators.user(), model, voice, aggregators.assistant()]),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
    )
    running, started = Call(worker, voice), asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def pipeline_started(*_: Any) -> None:
        started.set()

    @aggregators.assistant().event_handler("on_assistant_turn_stopped")
    async def turn_stopped(_: Any, message: Any) -> None:
        running.ended_turns.put_nowait(message)

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    task = asyncio.create_task(runner.run())
    async with asyncio.timeout(BOUND):
        await started.wait()
        yield running
        await worker.queue_frame(EndFrame())
        await task


async def said_in(memory: Any) -> list[tuple[str, Any]]:
    return [(one.role, one.content) for one in await memory.of("kim").messages(NAME)]


async def test_an_interrupted_answer_is_continued_after_a_restart(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        model = ScriptedModel("Lima.", "There is a rake. This sentence is endless.")
        async with call(AforesaidHistory("call 7", memory.of("kim")), model) as running:
            await running.say("What is the capital of Peru?")
            await running.ended_turns.get()
            await running.say("What is in the shed?")
            await running.voice.speaks_endlessly.wait()
            await running.worker.queue_frame(InterruptionFrame())
            assert (await running.ended_turns.get()).interrupted
    said = [
        ("user", "What is the capital of Peru?"),
        ("assistant", "Lima."),
        ("user", "What is in the shed?"),
        ("assistant", "There is a rake."),
    ]
    async with memory_in(tmp_path) as memory:
        assert await said_in(memory) == said
        cut = (await memory.of("kim").messages(NAME))[-1].speech
        model = ScriptedModel("A rake.")
        async with call(AforesaidHistory("call 7", memory.of("kim")), model) as running:
            await running.say("Go on.")
            await running.ended_turns.get()
        assert await said_in(memory) == [*said, ("user", "Go on."), ("assistant", "A rake.")]
    assert cut is not None
    assert (cut.interrupted, cut.words_heard) == (True, "There is a rake.")
    assert model.requests == [[*(text for _, text in said), "Go on."]]
