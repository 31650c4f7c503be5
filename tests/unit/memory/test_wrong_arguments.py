"""A wrong argument raises an error of ours that names it, and stores nothing.

Every public method and constructor is called with every wrong value, one argument at a time. A value that
happens to be valid may succeed. `make test-matrix` calls them on every store and through a server.
"""

import importlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import aforesaid
from aforesaid._internal.arguments import has_checkable_arguments, is_checked
from aforesaid.agents.toolbox import note_tools, owner_tools
from aforesaid.agents.tools import Tool, ToolRegistry, history_tool, history_tools
from aforesaid.audit import AuditTrail
from aforesaid.contracts import Audio, AudioFormat
from aforesaid.errors import InvalidInput, InvalidSetting
from aforesaid.layers.cached import Cache
from aforesaid.layers.encrypted import Encryption
from aforesaid.layers.resilient import Resilience
from aforesaid.memory.manager import ConversationManager
from aforesaid.memory.options import Retention
from aforesaid.memory.sessions import SessionManager, SessionPolicy
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.mappings import FrozenDict
from aforesaid.model.messages import Message
from aforesaid.notes.records import Source
from aforesaid.remote import Client, RemoteManager, RemoteMemory, RetryPolicy, SyncManager
from aforesaid.remote.managers import RemoteAssociation, RemoteContacts, SyncAssociation, SyncContacts
from aforesaid.settings import AgentConfig, ConversationConfig, Settings, VoiceConfig
from aforesaid.stores.blobs import FolderBlobs
from aforesaid.transfer.archives import ArchiveFolder
from aforesaid.voice import SoundLimits
from aforesaid.windows import WindowPolicy
from tests.builders import FEATURE_TARGETS, empty_url
from tests.servers.remote import open_at
from tests.unit.memory.receivers import RECEIVERS, Receivers
from tests.unit.memory.wrong_values import (
    NAMES,
    arguments_for,
    complaint,
    is_of_the_callers_function,
    outcome,
    parameters_of,
    public_methods,
    wrong_value,
)

NOT_CALLED = {
    ("association", "link_by_messages"): "called in the background, not by callers",
    ("memory", "scope"): "the server's: a client has none",
    ("memory", "layer"): "takes a class of ours; for surfaces, not for callers",
    ("loop", "run_in"): "part of the loop: `run` calls it",
    ("voice", "interrupted"): "needs an answer that was spoken",
}

RESULTS = {
    "Answer",
    "Apology",
    "Context",
    "ConversationResult",
    "IntentResponse",
    "Page",
    "Report",
    "Turn",
    "VoiceReply",
}
"""Values that calls return, which callers do not construct."""

OPTIONS = (
    *(ArchiveFolder, Audio, AudioFormat, AuditTrail, Cache, Encryption, FolderBlobs, RetryPolicy, Resilience),
    *(SessionManager, SessionPolicy, Source, Tool, ToolRegistry, WindowPolicy),
    *(history_tool, history_tools, note_tools, owner_tools),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "receivers" in metafunc.fixturenames:
        metafunc.parametrize("receivers", FEATURE_TARGETS, indirect=True)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some wrong values are valid relative paths, and an export writes there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def receivers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Receivers]:
    url = empty_url(request.param, tmp_path, request)
    options: dict[str, Any] = {"archives": tmp_path / "archives", "embedder": None, "summarizer": "extract"}
    async with open_at(url, sweep_every=None, **options) as memory:
        receivers = Receivers(memory, tmp_path)
        await receivers.fill()
        yield receivers


async def complaints_of(receivers: Receivers, call: Callable[..., Any], label: str) -> list[str]:
    """Call with each wrong value for each parameter; list what went wrong."""
    await receivers.fill()
    found: list[str] = []
    for parameter in parameters_of(call):
        # Comparing the whole store takes longer than a call, so compare once per parameter. Only if
        # something changed, repeat the calls and compare after each.
        names = names_for(parameter)
        wrong = [await complaint_of(receivers, call, parameter, name, compare=False) for name in names]
        if await receivers.is_changed("erin"):
            await receivers.fill()
            wrong = [await complaint_of(receivers, call, parameter, name, compare=True) for name in names]
        found += [f"{label}({each}" for each in wrong if each is not None]
        if await receivers.is_changed("bob"):
            found.append(f"{label}({parameter.name}): a value changed what another owner has")
    return found


ANOTHER_OWNERS = "another owner's"


def names_for(parameter: inspect.Parameter) -> list[str]:
    return [*NAMES, *([ANOTHER_OWNERS] if parameter.name.endswith("id") else [])]


@contextmanager
def value_named(receivers: Receivers, name: str) -> Iterator[Any]:
    if name == ANOTHER_OWNERS:
        yield receivers.of_bob
    else:
        with wrong_value(name) as value:
            yield value


async def complaint_of(
    receivers: Receivers, call: Callable[..., Any], parameter: inspect.Parameter, name: str, *, compare: bool
) -> str | None:
    """Call, say what went wrong, and, if asked to compare, put back what a successful call changed."""
    with value_named(receivers, name) as value:
        error = await outcome(call, {**arguments_for(call, receivers.valid), parameter.name: value})
    wrong = complaint(parameter, name, error)
    if compare and await receivers.is_changed("erin"):
        await receivers.fill()
        if error is not None and not is_of_the_callers_function(parameter, name):
            wrong = f"{wrong or error}; and it changed the store"
    return None if wrong is None else f"{parameter.name}={name}): {wrong}"


@pytest.mark.parametrize("name", RECEIVERS)
@pytest.mark.slow
async def test_methods_refuse_wrong_arguments(receivers: Receivers, name: str) -> None:
    found: list[str] = []
    for method in public_methods(RECEIVERS[name]):
        if (name, method) not in NOT_CALLED:
            found += await complaints_of(
                receivers, getattr(receivers.receiver(name), method), f"{name}.{method}"
            )
    assert found == []


def constructors() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in ("aforesaid", "aforesaid.agents", "aforesaid.voice", "aforesaid.settings"):
        public = importlib.import_module(module)
        for name in public.__all__:
            if module == "aforesaid.settings" and not name.endswith("Config"):
                continue
            made = getattr(public, name)
            if name not in RESULTS and (inspect.isfunction(made) or is_made_by_callers(made)):
                yield name, made
    yield from ((made.__name__, made) for made in OPTIONS)


def is_made_by_callers(made: Any) -> bool:
    if not inspect.isclass(made) or issubclass(made, Exception) or made is str:  # `Channel` is text
        return False
    return not getattr(made, "_is_protocol", False)


CONSTRUCTORS = dict(constructors())
VALID_FOR: dict[str, dict[str, Any]] = {
    "Audio": {"data": b"\0\0"},
    "WyomingTranscriber": {"url": "tcp://localhost:10300"},
    "agent_for": {"config": AgentConfig()},
    "connect": {"url": "https://memory.example.org"},
    "transcriber_for": {"config": VoiceConfig()},
}


@pytest.fixture
async def in_memory(tmp_path: Path) -> AsyncIterator[Receivers]:
    async with aforesaid.open(
        retention=aforesaid.Retention(sweep_every=None, archives=tmp_path / "archives"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        receivers = Receivers(memory, tmp_path)
        await receivers.fill()
        yield receivers


@pytest.mark.parametrize("name", CONSTRUCTORS)
async def test_constructors_refuse_wrong_arguments(in_memory: Receivers, name: str) -> None:
    in_memory.more = VALID_FOR.get(name, {})
    assert await complaints_of(in_memory, CONSTRUCTORS[name], name) == []


SAID = Message(role="user", content="x", message_id="m")
VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ConversationConfig": (ConversationConfig, {}),
    "Message": (Message, {"document": {"role": "user", "content": "x"}, "other": SAID}),
    "a message": (SAID, {"document": {"role": "user", "content": "x"}, "other": SAID}),
    "Retention": (Retention(), {}),
    "RetentionRules": (RetentionRules(), {"ttl": None, "conversation_ids": []}),
    "Settings": (Settings, {}),
    "SoundLimits": (SoundLimits(), {"audio": Audio(data=b"\0\0")}),
}
"""Values with public methods, and what is valid for these."""
FOR_STORES = "at"
"""Stamps a message in a store, where nothing is checked again."""


@pytest.mark.parametrize("name", VALUES)
async def test_methods_of_values_refuse_wrong_arguments(in_memory: Receivers, name: str) -> None:
    value, in_memory.more = VALUES[name]
    found: list[str] = []
    for method in public_methods(value if isinstance(value, type) else type(value)):
        is_bound = not isinstance(value, type) or inspect.ismethod(getattr(value, method))
        if is_bound and method != FOR_STORES:
            found += await complaints_of(in_memory, getattr(value, method), f"{name}.{method}")
    assert found == []


def unchecked(kind: type) -> list[str]:
    """The public methods whose arguments could be checked and are not."""
    return [
        name
        for name in public_methods(kind)
        if has_checkable_arguments(getattr(kind, name)) and not is_checked(getattr(kind, name))
    ]


FACES = (
    *(kind for name, kind in RECEIVERS.items() if name != "turn"),  # a message checks itself
    *(
        kind
        for kind in CONSTRUCTORS.values()
        if isinstance(kind, type) and not issubclass(kind, Struct | FrozenDict)
    ),
    *(Client, RemoteAssociation, RemoteContacts, RemoteManager, RemoteMemory),
    *(SyncAssociation, SyncContacts, SyncManager),
)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_every_public_method_checks_its_arguments(face: type) -> None:
    assert unchecked(face) == []


# By example


@pytest.fixture
async def erin() -> AsyncIterator[ConversationManager]:
    async with aforesaid.open(
        retention=aforesaid.Retention(sweep_every=None), models=aforesaid.Models(embedder=None)
    ) as memory:
        yield memory.of("erin")


async def test_pending_messages_that_are_none_are_refused(erin: ConversationManager) -> None:
    conversation = await erin.get_or_create_conversation("s")
    pending: Any = [{"role": "user", "content": "x"}]
    with pytest.raises(InvalidInput, match="pending must be a list of a Message"):
        await erin.load_context(conversation.id, pending=pending)


async def test_a_time_zone_is_a_tzinfo(erin: ConversationManager) -> None:
    zone: Any = "Europe/Berlin"
    with pytest.raises(InvalidInput, match="timezone must be a tzinfo or None; got 'Europe/Berlin'"):
        await erin.search_history("tea", timezone=zone)


async def test_no_messages_make_no_conversation(erin: ConversationManager) -> None:
    messages: Any = None
    with pytest.raises(InvalidInput, match="messages must be a list"):
        await erin.append_to_session("s", messages)
    assert await erin.session("s") is None


async def test_a_wrong_message_among_others_stores_none(erin: ConversationManager) -> None:
    messages: Any = [Message(role="user", content="x"), {"role": "user", "content": "y"}]
    with pytest.raises(InvalidInput, match="messages"):
        await erin.append_to_session("s", messages)
    assert await erin.session("s") is None


def test_an_encryption_needs_a_key_provider() -> None:
    text: Any = "dGV4dA=="
    with pytest.raises(InvalidSetting, match="master must be a KeyProvider"):
        Encryption(master=text)


@pytest.mark.parametrize(
    "fields", [{"attempts": 0}, {"read_deadline": -1.0}, {"policy": "retry"}, {"folder": "text"}], ids=str
)
def test_resilience_is_checked_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(fields))):
        Resilience(**fields)
