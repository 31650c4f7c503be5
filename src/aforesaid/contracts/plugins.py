"""What is brought along: encoders, token counters, summarizers, agents, transcribers. Below: values."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid.errors import InvalidAudio, shown
from aforesaid.model.messages import Message


class Embedder(Protocol):
    """Turns texts into vectors: texts of like meaning into vectors that point the same way."""

    @property
    def name(self) -> str:
        """The model's name, a part of the kind of every vector that it made."""
        ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Any:
        """A numpy array of float32 with one row for each text, each of length 1.

        Takes its time: call it off the event loop.
        """
        ...


class TokenCounter(Protocol):
    """Counts as a model does, or nearly. One name always gives the same counts, so they can be kept by it."""

    @property
    def name(self) -> str: ...

    def count_text(self, text: str) -> int:
        """How many tokens the text is. Any text has a count; loading at the first one may take a moment."""
        ...


class Summarizer(Protocol):
    """Says in short what was said: a model, or something built in."""

    @property
    def name(self) -> str:
        """Its summaries are kept under this name."""
        ...

    async def summarize(self, earlier: str, messages: Sequence[Message], *, max_tokens: int) -> str:
        """What the earlier summary, empty for none, and these messages say together, in so many tokens.

        What goes wrong is one of our errors: it is tried again later, and the earlier summary stays.
        """
        ...


Stop = Literal["end", "tools", "length", "pause"]
"""Why an agent stopped: it has answered, it waits for tools, it ran out of room, or it wants to go on."""

OnText = Callable[[str], None]
"""Told each piece of an answer as it arrives. Called on the event loop, so it must not wait."""


class Ask(Struct, frozen=True, kw_only=True):
    """What an agent is asked: a valid window with the question at its end, or a tool loop under way."""

    messages: tuple[Message, ...]
    """Oldest first, in any dialect: an agent writes them in its own."""
    system: str = ""
    """The system prompt, which is not in the log."""
    tools: tuple[dict[str, Any], ...] = ()
    """What it may call, described in its dialect: `ToolRegistry.definitions`."""
    may_call: bool = True
    """Whether it may call a tool now. Where it may not, the tools are still described."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them: all that went in, cached or not, and all that came out."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class Reply(Struct, frozen=True, kw_only=True):
    """One reply: words, calls of tools, or both, exactly as they were given."""

    messages: tuple[Message, ...]
    """In the agent's dialect. Calls wait for their results: the loop fetches them and asks again."""
    stop: Stop = "end"
    usage: Usage | None = None


class Agent(Protocol):
    """Whoever replies: a model behind a provider, or something built in. One question, one reply.

    It keeps nothing between two questions. What goes wrong is an `AgentError`: a provider's own
    errors never come through, and no error or log says a secret. An answer that broke off, or was
    refused, is an error too: a `Reply` is whole.
    """

    @property
    def name(self) -> str:
        """The `agent_name` of what it says."""
        ...

    @property
    def dialect(self) -> str:
        """The dialect of its replies."""
        ...

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """The reply. With `on_text` it is streamed: the words of the reply, piece by piece, go there too."""
        ...

    async def close(self) -> None:
        """Let go of what it opened itself. Closing twice is fine."""
        ...


PCM = "audio/pcm"
"""The media type of bare samples."""


class AudioFormat(Struct, frozen=True, kw_only=True):
    """How samples are written: whole numbers, little-endian, one after the other for each channel."""

    rate: int = 16_000
    """Samples a second. Speech needs no more than this."""
    width: int = 2
    """Bytes a sample."""
    channels: int = 1

    def __post_init__(self) -> None:
        for field, least, most in (("rate", 4_000, 192_000), ("width", 1, 4), ("channels", 1, 8)):
            value = getattr(self, field)
            if type(value) is not int or not least <= value <= most:
                raise InvalidAudio(
                    f"{field} must be a whole number from {least} to {most}; got {shown(value)}",
                    field=field,
                    value=value,
                )

    @property
    def frame(self) -> int:
        """Bytes that sound at the same moment."""
        return self.width * self.channels


class Audio(CheckedFields, frozen=True, kw_only=True):
    """Sound: bare samples, or a file of another media type, which not every transcriber can read."""

    data: bytes
    media_type: str = PCM
    format: AudioFormat = AudioFormat()
    """Of bare samples. A file says so itself."""

    @property
    def seconds(self) -> float | None:
        """How long it lasts; None where only the file knows."""
        if self.media_type != PCM:
            return None
        return len(self.data) / (self.format.frame * self.format.rate)


class Segment(Struct, frozen=True, kw_only=True):
    """Some words of a transcript, and when they were said: seconds from the beginning."""

    text: str
    start: float
    end: float
    confidence: float | None = None


class Transcript(Struct, frozen=True, kw_only=True):
    """What was understood."""

    text: str
    confidence: float | None = None
    """How sure of the words, from 0 to 1; None where the transcriber does not say."""
    language: str | None = None
    segments: tuple[Segment, ...] = ()


class Transcriber(Protocol):
    """Whoever turns sound into words. What goes wrong is a `TranscriberError`; no error says a secret."""

    @property
    def name(self) -> str: ...

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        """The words. Where nothing was understood the text is empty. `language` is what to expect."""
        ...

    async def close(self) -> None:
        """Let go of what it opened. Closing twice is fine."""
        ...


@runtime_checkable
class Listening(Protocol):
    """A transcriber that listens while somebody still speaks."""

    async def listen(
        self, chunks: AsyncIterable[bytes], audio_format: AudioFormat, *, language: str | None = None
    ) -> Transcript:
        """The words in bare samples that arrive piece by piece."""
        ...
