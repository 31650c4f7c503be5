"""How much is measured: enough for a table, or just enough to see that it works."""

from msgspec import Struct


class Size(Struct, frozen=True, kw_only=True):
    """The bounds of a run; times in seconds."""

    lengths: tuple[int, ...] = (10, 1_000, 10_000, 100_000)
    at_each_length: float = 1.5
    together: float = 2.0
    sharing: float = 4.0
    turns_of_task: int = 15
    turns_of_process: int = 60
    kills: int = 4
    conversations: int = 10_000
    messages: int = 50
    filling: float = 8.0
    """For peers, which are filled for so long and no longer."""
    questions: int = 100
    searched: tuple[int, ...] = (1_000, 10_000)
    """Conversations of a hundred messages of one owner, for search by words and meaning."""
    agreement: tuple[int, ...] = (100, 300)
    """The same for the comparison of stores."""
    first_questions: int = 7
    """Processes that ask their first question."""
    write_rounds: int = 20
    histories: int = 100
    serving: float = 2.0
    serving_rounds: int = 4
    listed: tuple[int, ...] = (1_000, 10_000)
    """Conversations among which conversations are searched."""
    rounds: int = 750
    """Turns beside the floor."""


FULL = Size()
QUICK = Size(
    lengths=(10, 1_000),
    at_each_length=0.3,
    together=0.4,
    sharing=2.0,
    turns_of_task=3,
    turns_of_process=6,
    kills=1,
    conversations=100,
    filling=1.0,
    questions=20,
    searched=(10,),
    agreement=(3,),
    first_questions=1,
    write_rounds=2,
    histories=5,
    serving=0.3,
    serving_rounds=2,
    listed=(100,),
    rounds=50,
)
