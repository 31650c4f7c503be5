"""Everything that is held about an owner, in a folder, and back."""

import hashlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import aforesaid
from aforesaid.errors import Conflict, InvalidSetting, StoreDamaged, StoreForeign, StoreUnavailable
from aforesaid.memory.manager import ConversationManager
from aforesaid.model.lifetimes import RetentionRules
from aforesaid.model.messages import Message
from aforesaid.testing import FixedClock
from aforesaid.transfer.documents import documents_of
from tests.servers.remote import open_at
from tests.unit.retention.test_archives import everything, live

HOSTILE = "<script>alert('x')</script> & \"quotes\" \u202e \x00"


async def whole(manager: ConversationManager) -> dict[str, Any]:
    """All that a store holds about an owner."""
    records = (await manager.list(limit=1000)).conversations
    return {
        "conversations": {record.id: await everything(manager, record.id) for record in records},
        "documents": [document async for chunk in documents_of(manager.store) for document in chunk],
        "archives": [
            (one.conversation_id, one.archived_at, one.messages, one.documents, one.blobs)
            for one in await manager.archives()
        ],
    }


async def furnish(manager: ConversationManager) -> None:
    await manager.archive(await live(manager, session="before"))
    await live(manager)
    hostile = await manager.get_or_create_conversation("x")
    await manager.update_metadata(hostile.id, subject=HOSTILE.replace("\0", ""), tags=["<b>"])
    await manager.add_message(hostile.id, "user", HOSTILE)
    await manager.store.put_document("notes", "<i>", HOSTILE.encode())
    await manager.store.put_document("keys", "1", b"\xff\x00\xfe")
    await manager.set_retention(RetentionRules(tags={"food": None}))


async def test_an_import_gives_back_an_equal_owner(
    memory: aforesaid.Memory, clock: FixedClock, tmp_path: Path
) -> None:
    erin = memory.of("erin")
    await furnish(erin)
    await memory.of("bob").get_or_create_conversation("kitchen")
    before = await whole(erin)
    manifest = await erin.export(tmp_path / "export")
    assert manifest.counts == {"archives": 1, "blobs": 1, "conversations": 2, "documents": 4, "messages": 5}
    assert manifest.owner == "erin"
    await erin.erase()
    assert await whole(erin) != before
    assert await erin.import_(tmp_path / "export") == manifest
    assert await whole(erin) == before
    await erin.import_(tmp_path / "export")
    assert await whole(erin) == before, "twice is once"
    other = memory.of("somebody else")
    await other.import_(tmp_path / "export")
    assert (await whole(other))["documents"] == before["documents"]


@pytest.mark.parametrize("now", ["archived", "live"])
async def test_an_import_leaves_what_went_on_since_and_says_so(
    memory: aforesaid.Memory, tmp_path: Path, now: str
) -> None:
    erin = memory.of("erin")
    conversation_id = await live(erin)
    await erin.archive(conversation_id)
    await erin.export(tmp_path / "export")
    await erin.restore(conversation_id)
    await erin.add_message(conversation_id, "user", "and dessert?")
    if now == "archived":
        await erin.archive(conversation_id)
    before = await whole(erin)
    with pytest.raises(Conflict, match=f"1 of 1 archives were not imported.*{conversation_id}"):
        await erin.import_(tmp_path / "export")
    assert await whole(erin) == before


async def test_a_later_export_brings_an_archive_up_to_date(memory: aforesaid.Memory, tmp_path: Path) -> None:
    erin, copy = memory.of("erin"), memory.of("copy")
    conversation_id = await live(erin)
    await erin.archive(conversation_id)
    await erin.export(tmp_path / "earlier")
    await erin.restore(conversation_id)
    await erin.add_message(conversation_id, "user", "and dessert?")
    await erin.archive(conversation_id)
    await erin.export(tmp_path / "later")
    for folder in ("earlier", "later"):
        await copy.import_(tmp_path / folder)
    assert (await whole(copy))["archives"] == (await whole(erin))["archives"]


async def test_a_conversation_that_went_on_keeps_no_archive_from_coming(
    memory: aforesaid.Memory, tmp_path: Path
) -> None:
    erin = memory.of("erin")
    await furnish(erin)
    before = await whole(erin)
    await erin.export(tmp_path / "export")
    went_on, archived = next(iter(before["conversations"])), before["archives"][0][0]
    await erin.add_message(went_on, "user", "and dessert?")
    await erin.delete_conversation(archived)
    with pytest.raises(Conflict, match=went_on):
        await erin.import_(tmp_path / "export")
    assert (await whole(erin))["archives"] == before["archives"]


@pytest.fixture
async def exported(tmp_path: Path) -> Any:
    async with aforesaid.open(
        "memory://",
        retention=aforesaid.Retention(sweep_every=None, archives=tmp_path / "archives"),
        images=aforesaid.ImageOptions(policy="blobs", blobs=tmp_path / "blobs"),
        models=aforesaid.Models(embedder=None),
    ) as memory:
        await furnish(memory.of("erin <b>"))
        await memory.of("erin <b>").export(tmp_path / "export")
        yield memory


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


async def test_the_page_shows_what_was_said_and_runs_nothing(
    exported: aforesaid.Memory, tmp_path: Path
) -> None:
    page = _Page()
    page.feed((tmp_path / "export" / "index.html").read_text())
    text = "".join(page.texts)
    assert "Data stored about erin <b>" in text
    for said in ("lemon chicken", "[redacted]", "Dinner", "alert('x')", "search", "3 bytes"):
        assert said in text
    assert not {"script", "iframe", "b>", "i"} & page.tags
    for link in page.links:
        assert (tmp_path / "export" / link).is_file()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"text": "tea <b>", "none": null}', "<dl><dt>text</dt><dd>tea &lt;b&gt;</dd></dl>"),
        (b'{"tags": ["a", "b"]}', "<dt>tags</dt><dd>a, b</dd>"),
        (b'{"deep": {"x": 1}}', "<dt>deep</dt><dd>{&quot;x&quot;: 1}</dd>"),
        (b"{not JSON", "<pre>{not JSON</pre>"),
        (b"plain & simple", "<pre>plain &amp; simple</pre>"),
        (b"\xff\x00", "<pre>2 bytes</pre>"),
    ],
)
async def test_a_document_is_shown_by_its_fields(data: bytes, shown: str, tmp_path: Path) -> None:
    async with aforesaid.open(
        f"sqlite:///{tmp_path}/memory.db", models=aforesaid.Models(embedder=None)
    ) as memory:
        erin = memory.of("erin")
        await erin.store.put_document("things", "one", data)
        await erin.export(tmp_path / "export")
    assert shown in (tmp_path / "export" / "index.html").read_text()


async def test_the_manifest_names_every_file(exported: aforesaid.Memory, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    named = {file["path"] for file in manifest["files"]} | {"manifest.json"}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert named == there
    private = [folder, *(path for path in folder.rglob("*") if path.is_file())]
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)


@pytest.mark.parametrize("name", ["conversations.jsonl", "index.html", "blobs", "archives"])
async def test_an_altered_folder_changes_nothing(
    exported: aforesaid.Memory, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "export" / name
    file = target if target.is_file() else next(path for path in target.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes() + b" ")
    other = exported.of("other")
    with pytest.raises(StoreDamaged, match="altered"):
        await other.import_(tmp_path / "export")
    assert await whole(other) == {"conversations": {}, "documents": [], "archives": []}


def _leads_elsewhere(manifest: dict[str, Any], folder: Path) -> None:
    manifest["files"].append({"path": "../../etc/passwd", "size": 1, "sha256": "0" * 64})


def _names_no_conversations(manifest: dict[str, Any], folder: Path) -> None:
    manifest["files"] = [one for one in manifest["files"] if one["path"] != "conversations.jsonl"]


def _names_no_archive(manifest: dict[str, Any], folder: Path) -> None:
    manifest["files"] = [one for one in manifest["files"] if not one["path"].endswith(".jsonl")]
    manifest["files"] += [_file(folder, "conversations.jsonl")]


def _has_an_archive_elsewhere(manifest: dict[str, Any], folder: Path) -> None:
    (folder / ".." / "elsewhere.jsonl").write_bytes(b"x")
    manifest["archives"][0]["conversation_id"] = "../../elsewhere"


def _has_something_else_for_an_archive(manifest: dict[str, Any], folder: Path) -> None:
    path = f"archives/{manifest['archives'][0]['conversation_id']}.jsonl"
    (folder / path).write_bytes(b"something else")
    manifest["files"] = [one for one in manifest["files"] if one["path"] != path] + [_file(folder, path)]


def _has_all_conversations_for_an_archive(manifest: dict[str, Any], folder: Path) -> None:
    path = f"archives/{manifest['archives'][0]['conversation_id']}.jsonl"
    (folder / path).write_bytes((folder / "conversations.jsonl").read_bytes())
    manifest["files"] = [one for one in manifest["files"] if one["path"] != path] + [_file(folder, path)]


def _has_another_revision(manifest: dict[str, Any], folder: Path) -> None:
    manifest["archives"][0]["revision"] += 1


def _has_another_picture(manifest: dict[str, Any], folder: Path) -> None:
    path = next(one["path"] for one in manifest["files"] if one["path"].startswith("blobs/"))
    (folder / path).write_bytes(b"another")
    manifest["files"] = [one for one in manifest["files"] if one["path"] != path] + [_file(folder, path)]


def _file(folder: Path, path: str) -> dict[str, Any]:
    content = (folder / path).read_bytes()
    return {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.parametrize(
    ("alter", "describe"),
    [
        (_leads_elsewhere, "an unexpected file"),
        (_names_no_conversations, "lacks a required file"),
        (_names_no_archive, "lacks a required file"),
        (_has_an_archive_elsewhere, "lacks a required file"),
        (_has_something_else_for_an_archive, "not an archived conversation"),
        (_has_all_conversations_for_an_archive, "not an archived conversation"),
        (_has_another_revision, "does not match the conversation"),
        (_has_another_picture, "altered"),
    ],
)
async def test_a_folder_whose_manifest_was_altered_with_it_changes_nothing(
    exported: aforesaid.Memory,
    tmp_path: Path,
    alter: Callable[[dict[str, Any], Path], None],
    describe: str,
) -> None:
    path = tmp_path / "export" / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes())
    alter(manifest, tmp_path / "export")
    path.write_bytes(msgspec.json.encode(manifest))
    other = exported.of("other")
    with pytest.raises(StoreDamaged, match=describe):
        await other.import_(tmp_path / "export")
    assert await whole(other) == {"conversations": {}, "documents": [], "archives": []}


async def test_a_file_that_the_manifest_does_not_name_is_not_imported(
    exported: aforesaid.Memory, tmp_path: Path
) -> None:
    (pictures,) = (tmp_path / "export" / "archives" / "blobs").iterdir()
    (pictures / "desktop.ini").write_bytes(b"x")
    other = exported.of("other")
    await other.import_(tmp_path / "export")
    (archive,) = await other.archives()
    await other.restore(archive.conversation_id)


@pytest.mark.parametrize("place", ["blobs", "archives"])
async def test_a_memory_without_a_place_for_something_takes_nothing(
    exported: aforesaid.Memory, tmp_path: Path, place: str
) -> None:
    places: dict[str, Any] = {
        name: tmp_path / f"other {name}" for name in ("blobs", "archives") if name != place
    }
    async with open_at("memory://", sweep_every=None, embedder=None, **places) as memory:
        with pytest.raises(InvalidSetting, match=f"set `{place}` of"):
            await memory.of("erin").import_(tmp_path / "export")
        assert (await memory.of("erin").list()).conversations == ()


async def test_a_folder_that_is_taken_or_none_is_refused(exported: aforesaid.Memory, tmp_path: Path) -> None:
    erin = exported.of("erin <b>")
    with pytest.raises(InvalidSetting, match="already exists"):
        await erin.export(tmp_path / "export")
    with pytest.raises(StoreUnavailable):
        await erin.import_(tmp_path / "nothing")
    (tmp_path / "export" / "manifest.json").write_text("{}")
    with pytest.raises(StoreForeign):
        await erin.import_(tmp_path / "export")


async def test_a_named_conversation_has_its_name_for_another_owner(
    memory: aforesaid.Memory, tmp_path: Path
) -> None:
    erin, bob = memory.of("erin"), memory.of("bob")
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    await erin.append("kitchen", [Message(role="user", content=[picture], dialect="anthropic")])
    await erin.add_message("kitchen", "user", "The oven is hot")
    await erin.export(tmp_path / "export")
    await bob.import_(tmp_path / "export")
    await bob.import_(tmp_path / "export")  # again: nothing changes
    theirs, ours = await bob.get_conversation("kitchen"), await erin.get_conversation("kitchen")
    assert (theirs.name, theirs.message_count) == ("kitchen", 2)
    assert theirs.id != ours.id
    assert (await bob.load_context("kitchen")).messages == (await erin.load_context("kitchen")).messages
    await erin.erase()
    await bob.add_message("kitchen", "user", "It is off now")
    assert (await bob.get_conversation("kitchen")).message_count == 3
