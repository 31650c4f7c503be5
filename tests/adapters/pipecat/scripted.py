"""A real pipeline whose model and voice are scripted."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

from pipecat.frames.frames import (
    EndFrame,
    Frame,
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
from pipecat.services.llm_service import FunctionCallFromLLM, FunctionCallParams, LLMService
from pipecat.services.settings import LLMSettings, TTSSettings
from pipecat.services.tts_service import TTSService
from pipecat.workers.runner import WorkerRunner

from aforesaid.adapters.pipecat import AforesaidHistory

RATE = 16000
BOUND = 120


class ScriptedModel(LLMService[Any]):
    """Give the answers of a script, texts or tool calls, and keep what was asked."""

    def __init__(self, *answers: Any, before: Callable[[], Any] = lambda: None) -> None:
        # Pipecat reports settings that have no value, even None.
        absent = {field.name: None for field in fields(LLMSettings) if field.name not in ("model", "extra")}
        super().__init__(settings=LLMSettings(model="scripted", **absent))
        self.answers = list(answers)
        self.before = before
        self.register_function("look", self._look)
        self.requests: list[list[str]] = []
        self.tool_may_finish = asyncio.Event()
        self.tool_may_finish.set()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        self.requests.append([str(one.get("content")) for one in frame.context.get_messages()])
        self.before()
        answer = self.answers.pop(0)
        await self.push_frame(LLMFullResponseStartFrame())
        if isinstance(answer, str):
            await self.push_frame(LLMTextFrame(answer))
        else:
            arguments = {"where": "shed"}
            call = FunctionCallFromLLM(
                function_name="look", tool_call_id=answer["id"], arguments=arguments, context=frame.context
            )
            await self.run_function_calls([call])
        await self.push_frame(LLMFullResponseEndFrame())

    async def _look(self, params: FunctionCallParams) -> None:
        await self.tool_may_finish.wait()
        await params.result_callback("a rake in the " + params.arguments["where"])


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
