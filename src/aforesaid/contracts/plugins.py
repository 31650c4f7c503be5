"""Plug-ins that an application provides: embedders, token counters, summarizers, agents, transcribers."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from aforesaid._internal.arguments import CheckedFields
from aforesaid.errors import InvalidAudio, shown
from aforesaid.model.messages import Message


class Embedder(Protocol):
    """Turns texts into vectors; similar meanings give vectors of similar direction."""

    @property
    def name(self) -> str:
        """The model's name, part of the kind of every vector document."""
        ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Any:
        """Return a numpy array of float32 with one row per text, each of length 1.

        This may block: call it outside the event loop.
        """
        ...


class TokenCounter(Protocol):
    """Counts tokens as a model does, or approximately. Counts are stored by name, so one name has fixed
    counts.
    """

    @property
    def name(self) -> str: ...

    def count_text(self, text: str) -> int:
        """Return the number of tokens of any text. The first call may load data."""
        ...


class Summarizer(Protocol):
    """Summarizes messages: a model or a built-in algorithm."""

    @property
    def name(self) -> str:
        """The name under which its summaries are stored."""
        ...

    async def summarize(self, earlier: str, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Summarize the earlier summary (empty for none) and these messages in at most `max_tokens`.

        Raise an `AforesaidError` on failure: the earlier summary stays, and the call is repeated later.
        """
        ...


class DetectedNote(Struct, frozen=True, kw_only=True):
    """A preference or fact in a message."""

    text: str
    subject: str | None = None
    """A later note on the same subject replaces an earlier one; None takes the subject from the text."""
    tags: tuple[str, ...] = ()


class NoteDetector(Protocol):
    """Finds preferences and lasting facts in a user's message: a model or rules."""

    @property
    def name(self) -> str: ...

    async def detect(self, message: Message) -> Sequence[DetectedNote]:
        """Return the notes in the message. Raise an `AforesaidError` on failure: nothing is stored then."""
        ...


Stop = Literal["end", "tools", "length", "pause"]
"""Why an agent stopped: it answered, it waits for tools, it reached the length limit, or it paused to
continue.
"""

OnText = Callable[[str], None]
"""Called with each piece of an answer as it arrives, on the event loop; it must not block."""


class Ask(Struct, frozen=True, kw_only=True):
    """An agent's input: a valid window that ends with the question or with tool results."""

    messages: tuple[Message, ...]
    """Oldest first, in any dialect; the agent renders them in its own."""
    system: str = ""
    """The system prompt, which is not part of the log."""
    tools: tuple[dict[str, Any], ...] = ()
    """The available tools, in the agent's dialect: `ToolRegistry.definitions`."""
    may_call: bool = True
    """Whether the agent may call a tool now. If not, the tools are still described."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them: all input, cached or not, and all output."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


class Reply(Struct, frozen=True, kw_only=True):
    """One reply, unchanged: text, tool calls, or both."""

    messages: tuple[Message, ...]
    """In the agent's dialect. The loop executes tool calls and calls the agent again."""
    stop: Stop = "end"
    usage: Usage | None = None


class Agent(Protocol):
    """A model behind a provider, or a built-in agent. It is stateless: one request, one reply.

    It raises `AgentError` on failure, never a provider's own error. No error and no log contains a secret. An
    answer that broke off or was refused is an error too: a `Reply` is complete.
    """

    @property
    def name(self) -> str:
        """The `agent_name` of its messages."""
        ...

    @property
    def dialect(self) -> str:
        """The dialect of its replies."""
        ...

    async def reply(self, ask: Ask, *, on_text: OnText | None = None) -> Reply:
        """Return the reply. With `on_text` it is streamed: each piece of its text is passed there too."""
        ...

    async def close(self) -> None:
        """Release what it opened itself. Closing twice is allowed."""
        ...


# The media type of raw samples.
PCM = "audio/pcm"


class AudioFormat(Struct, frozen=True, kw_only=True):
    """The format of raw samples: signed integers, little-endian, interleaved channels."""

    rate: int = 16_000
    """Samples per second. Speech needs no more than the default."""
    width: int = 2
    """Bytes per sample."""
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
        """Bytes of one frame: one sample of each channel."""
        return self.width * self.channels


class Audio(CheckedFields, frozen=True, kw_only=True):
    """Raw samples, or a file of another media type. Not every transcriber reads files."""

    data: bytes
    media_type: str = PCM
    format: AudioFormat = AudioFormat()
    """The format of raw samples. A file contains its own."""

    @property
    def seconds(self) -> float | None:
        """The duration; None for a file."""
        if self.media_type != PCM:
            return None
        return len(self.data) / (self.format.frame * self.format.rate)


class Segment(Struct, frozen=True, kw_only=True):
    """Part of a transcript with its start and end, in seconds from the beginning."""

    text: str
    start: float
    end: float
    confidence: float | None = None


class Transcript(Struct, frozen=True, kw_only=True):
    """The result of a transcription."""

    text: str
    confidence: float | None = None
    """The confidence from 0 to 1; None where the transcriber does not report one."""
    language: str | None = None
    segments: tuple[Segment, ...] = ()


class Transcriber(Protocol):
    """Turns audio into text. It raises `TranscriberError` on failure; no error contains a secret."""

    @property
    def name(self) -> str: ...

    async def transcribe(self, audio: Audio, *, language: str | None = None) -> Transcript:
        """Return the transcript; its text is empty where nothing was understood. `language` is the expected
        one.
        """
        ...

    async def close(self) -> None:
        """Release what it opened. Closing twice is allowed."""
        ...


@runtime_checkable
class StreamingTranscriber(Protocol):
    """A transcriber that works while the user is still speaking."""

    async def listen(
        self, chunks: AsyncIterable[bytes], audio_format: AudioFormat, *, language: str | None = None
    ) -> Transcript:
        """Transcribe raw samples that arrive in chunks."""
        ...


@runtime_checkable
class NameAwareTranscriber(Protocol):
    """A transcriber that recognizes given names better than others."""

    async def transcribe_with_names(
        self, audio: Audio, names: Sequence[str], *, language: str | None = None
    ) -> Transcript:
        """Return the transcript of audio in which these names are likely, the most likely first."""
        ...


# The contract of a store of histories: four methods, with any text as the id of a conversation.


@runtime_checkable
class HistoryStore(Protocol):
    """Whole histories by conversation. `aforesaid.stores.histories` derives a `ConversationStore` from it."""

    async def load(self, conversation_id: str) -> list[dict[str, Any]]:
        """Return the messages, oldest first; empty if there are none."""
        ...

    async def save(self, conversation_id: str, history: list[dict[str, Any]]) -> None:
        """Store these messages in place of the earlier ones."""
        ...

    async def delete(self, conversation_id: str) -> None:
        """Remove the messages. A missing conversation is not an error."""
        ...

    async def purge_expired(self) -> int:
        """Remove expired histories; return how many."""
        ...
