"""The entrants: ours, the floors, the peers; how each is called, and its durability by default."""

from typing import Literal

from msgspec import Struct

from benchmarks.peers.environments import OURS

Kind = Literal["ours", "floor", "peer"]
Place = Literal["folder", "redis", "postgres"]


class Entrant(Struct, frozen=True, kw_only=True):
    """A memory in the comparison."""

    name: str
    adapter: str
    """Module and class among the adapters."""
    environment: str = OURS
    kind: Kind = "peer"
    place: Place = "folder"
    fresh: bool = False
    """Nothing is held from turn to turn."""
    blocking: bool = False
    longest: int = 100_000
    """Messages beyond which it is not grown."""
    durable: str
    """What an acknowledged turn survives, by the memory's own defaults."""
    driven: str
    """How, in one line for the reader of the tables."""

    is_variant: bool = False
    """A second way to drive the same memory: measured turn by turn only."""


FULL = "power cut"
SERVER = "power cut (server flushes each commit)"

ENTRANTS = (
    Entrant(
        name="Aforesaid",
        adapter="ours:SQLite",
        kind="ours",
        durable=FULL,
        driven="`manager.turn`, defaults: tokens counted, searchable by words, `synchronous=FULL`",
    ),
    Entrant(
        name="Aforesaid, search=off",
        adapter="ours:SQLiteWithoutSearch",
        kind="ours",
        is_variant=True,
        durable=FULL,
        driven="the same with `?search=off`",
    ),
    Entrant(
        name="floor: sqlite3",
        adapter="floors:SQLite3",
        kind="floor",
        blocking=True,
        durable=FULL,
        driven="two rows in one transaction, WAL, `FULL`, on the calling thread",
    ),
    Entrant(
        name="floor: file",
        adapter="floors:File",
        kind="floor",
        blocking=True,
        durable=FULL,
        driven="two lines appended, `fdatasync`",
    ),
    Entrant(
        name="OpenAI SQLiteSession",
        adapter="openai_agents:SQLite",
        environment="openai-agents",
        durable=FULL,
        driven="`add_items` of both messages, `get_items(limit=20)`",
    ),
    Entrant(
        name="OpenAI AdvancedSQLiteSession",
        adapter="openai_agents:Advanced",
        environment="openai-agents",
        durable=FULL,
        driven="the same calls, `create_tables=True`",
    ),
    Entrant(
        name="LangChain SQLChatMessageHistory",
        adapter="langchain:SQLHistory",
        environment="langchain",
        blocking=True,
        durable=FULL,
        driven="`add_messages` of both, the end of `messages`; one engine",
    ),
    Entrant(
        name="LangGraph AsyncSqliteSaver",
        adapter="langgraph:SQLite",
        environment="langgraph",
        durable=FULL,
        driven="`ainvoke` of a graph of one node over `MessagesState`, `aget_state`",
    ),
    Entrant(
        name="LlamaIndex Memory",
        adapter="llama_index:SQLMemory",
        longest=10_000,  # to grow it further takes minutes
        environment="llama-index",
        durable=FULL,
        driven="`aput_messages` of both, `aget`; its own limit of 30,000 tokens; a file for its database",
    ),
    Entrant(
        name="Google ADK, session held",
        adapter="google_adk:DatabaseSessions",
        longest=10_000,  # to grow it further takes minutes
        environment="google-adk",
        durable=FULL,
        driven="two `append_event` on a session held by the application",
    ),
    Entrant(
        name="Google ADK, session read",
        adapter="google_adk:DatabaseSessions",
        longest=10_000,  # to grow it further takes minutes
        environment="google-adk",
        fresh=True,
        is_variant=True,
        durable=FULL,
        driven="`get_session` with the last 20 events, then two `append_event`",
    ),
    Entrant(
        name="Strands, agent held",
        adapter="strands:Files",
        longest=10_000,  # a file for each message: to make and remove a hundred thousand takes minutes
        environment="strands",
        blocking=True,
        durable="kill (nothing is flushed)",
        driven="the session manager's hooks for both messages, on an agent held by the application",
    ),
    Entrant(
        name="Strands, agent restored",
        adapter="strands:Files",
        longest=10_000,  # a file for each message: to make and remove a hundred thousand takes minutes
        environment="strands",
        blocking=True,
        fresh=True,
        is_variant=True,
        durable="kill (nothing is flushed)",
        driven="the agent is first restored from its session, as in a stateless service",
    ),
    Entrant(
        name="Aforesaid on Redis",
        adapter="ours:Redis",
        kind="ours",
        place="redis",
        durable=SERVER,
        driven="`manager.turn`, defaults",
    ),
    Entrant(
        name="floor: redis-py",
        adapter="floors:Redis",
        kind="floor",
        place="redis",
        durable=SERVER,
        driven="`RPUSH` and `HSET` in one pipeline",
    ),
    Entrant(
        name="OpenAI RedisSession",
        adapter="openai_agents:Redis",
        environment="openai-agents",
        place="redis",
        durable=SERVER,
        driven="`add_items` of both messages, `get_items(limit=20)`; one client",
    ),
    Entrant(
        name="Aforesaid on PostgreSQL",
        adapter="ours:Postgres",
        kind="ours",
        place="postgres",
        durable=SERVER,
        driven="`manager.turn`, defaults",
    ),
    Entrant(
        name="floor: psycopg",
        adapter="floors:Postgres",
        kind="floor",
        place="postgres",
        durable=SERVER,
        driven="`BEGIN`, `INSERT` of two rows, `COMMIT` over a pool",
    ),
    Entrant(
        name="LangGraph AsyncPostgresSaver",
        adapter="langgraph:Postgres",
        environment="langgraph",
        place="postgres",
        durable=SERVER,
        driven="as its SQLite saver",
    ),
)


def named(name: str) -> Entrant:
    return next(one for one in ENTRANTS if one.name == name)
