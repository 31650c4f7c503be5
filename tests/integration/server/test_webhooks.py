"""Webhooks: signed, each notification once across processes, tried again, and only to allowed hosts."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import aforesaid
from aforesaid.errors import InvalidInput, NotAllowed
from aforesaid.model.ids import new_id
from aforesaid.model.webhooks import new_secret, parse_webhook_url
from aforesaid.server import webhook_deliveries
from aforesaid.server.live.presence import Presences
from aforesaid.server.webhook_deliveries import WebhookDeliveries, pause_after
from aforesaid.server.webhooks import WebhookHosts, checked_address
from aforesaid.settings import ServerConfig
from tests.builders import url_for
from tests.integration.server.running import serving
from tests.servers.remote import open_at


class Receiver:
    """A program that gets webhooks, and answers with the given statuses, then with 204."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/notify?for=bob"
        self.host = f"127.0.0.1:{port}"
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []

    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.got]

    def messages(self) -> list[str]:
        return [json.loads(body)["data"]["message_id"] for _, body in self.got]


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status = found.statuses.pop(0) if found.statuses else 204
            self.send_response(status)
            if status == 302:
                self.send_header("location", found.url)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture(params=["redis", "postgres"])
async def memories(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[aforesaid.Memory, aforesaid.Memory]]:
    """The same store opened by two processes, as far as it can tell."""
    url = url_for(request.param, tmp_path, request)
    async with AsyncExitStack() as stack:
        options = {"sweep_every": None, "preload": False, "embedder": None}
        one, other = [await stack.enter_async_context(open_at(url, **options)) for _ in range(2)]
        yield one, other


def deliveries(memory: aforesaid.Memory, receiver: Receiver) -> WebhookDeliveries:
    return WebhookDeliveries(memory, WebhookHosts(receiver.host), Presences())


async def say(manager: aforesaid.ConversationManager, shared: str, *ids: str) -> None:
    for message_id in ids:
        await manager.add_message(shared, "user", "secret words", author="ann", message_id=message_id)


async def meeting(manager: aforesaid.ConversationManager) -> str:
    shared = (await manager.get_or_create_conversation("roof")).id
    for participant in ("ann", "bob"):
        await manager.set_participant(shared, participant)
    return shared


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """The verification that the specification describes."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{expected}"


async def test_two_processes_send_each_notification_once_and_signed(
    memories: tuple[aforesaid.Memory, aforesaid.Memory], receiver: Receiver
) -> None:
    owner = f"owner-{new_id()}"
    manager = memories[0].of(owner)
    shared = await meeting(manager)
    webhook = await manager.set_webhook("bob", receiver.url)
    assert webhook.secret not in repr(webhook)
    assert [one.secret for one in await manager.webhooks()] == [""]
    await say(manager, shared, "m1", "m2", "m3")
    both = [deliveries(memory, receiver) for memory in memories]
    await asyncio.gather(*(one.deliver() for one in (*both, *both)))
    for one in both:
        await one.deliver()
    assert receiver.messages() == ["m1", "m2", "m3"]
    assert len(set(receiver.ids())) == 3
    assert all(is_signed(webhook.secret, headers, body) for headers, body in receiver.got)
    assert b"secret words" not in b"".join(body for _, body in receiver.got)
    assert await manager.take_notifications(participant_id="bob") == []

    await manager.set_notification_rule(shared, "mentions", participant_id="bob")
    await say(manager, shared, "m4")
    await both[1].deliver()
    assert len(receiver.got) == 3
    assert await manager.delete_webhook("bob")
    await both[0].deliver()


async def test_a_failed_request_is_tried_again_later_with_the_same_id(
    memories: tuple[aforesaid.Memory, aforesaid.Memory], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = memories[0].of(f"owner-{new_id()}")
    shared = await meeting(manager)
    await manager.set_webhook("bob", receiver.url)
    await say(manager, shared, "m1", "m2")
    receiver.statuses = [500, 302]
    one, other = (deliveries(memory, receiver) for memory in memories)
    for process in (one, other, one):
        await process.deliver()
    assert receiver.messages() == ["m1"], "a failure delays what follows, in all processes"
    store = memories[0].of(manager.owner).store
    passed = timedelta()
    now = type(store).now
    monkeypatch.setattr(type(store), "now", lambda self: now(self) + passed)
    passed = pause_after(0)
    await other.deliver()
    assert receiver.messages() == ["m1", "m1"], "a redirect is not followed"
    await one.deliver()
    assert len(receiver.got) == 2, "the second pause is longer"
    passed += pause_after(1)
    monkeypatch.setattr(webhook_deliveries, "WHOLE_SECONDS", 0.0)
    await one.deliver()
    assert receiver.messages() == ["m1", "m1", "m1", "m2"]
    assert len(set(receiver.ids())) == 2
    # What a process that ended had claimed is sent by another, after the claim.
    await say(manager, shared, "m3")
    stopped = WebhookDeliveries(memories[0], WebhookHosts(receiver.host), Presences(), send=_ends)
    with pytest.raises(SystemError):
        await stopped.deliver()
    await other.deliver()
    assert receiver.messages()[-1] == "m2"
    passed += webhook_deliveries.LEASE
    await other.deliver()
    assert receiver.messages()[-1] == "m3"
    # The read marker clears what waits.
    receiver.statuses = [500]
    await say(manager, shared, "m4")
    await one.deliver()
    await manager.mark_read_up_to(shared, "m4", participant_id="bob")
    passed += pause_after(5)
    await one.deliver()
    assert receiver.messages().count("m4") == 1


def _ends(*_: object) -> int:
    raise SystemError


async def test_a_server_delivers_to_hosts_that_its_operator_lists(receiver: Receiver) -> None:
    settings = ServerConfig(webhook_hosts=f"hooks.example.com, {receiver.host}")
    async with serving(settings=settings) as server:
        headers = {"Aforesaid-Owner": "firm"}
        manager = server.memory.of("firm")
        shared = await meeting(manager)
        refused = await server.client.put(
            "/v1/webhooks/bob", json={"url": "https://127.0.0.1:1/x"}, headers=headers
        )
        assert refused.status_code == 403
        reply = await server.client.put("/v1/webhooks/bob", json={"url": receiver.url}, headers=headers)
        assert reply.json()["secret"].startswith("whsec_")
        listed = (await server.client.get("/v1/webhooks", headers=headers)).json()["webhooks"]
        assert [(one["participant_id"], one["secret"]) for one in listed] == [("bob", "")]
        await say(manager, shared, "m1")
        async with asyncio.timeout(120):
            while not receiver.got:  # noqa: ASYNC110  the server looks every second
                await asyncio.sleep(0.05)
        gone = await server.client.delete("/v1/webhooks/bob", headers=headers)
        assert gone.json() == {"deleted": True}
        erased = await manager.erase_participant("bob")
        assert erased.erased["participants"] == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/",
        "ftp://127.0.0.1/",
        "https://user:word@hooks.example.com/",
        "https:///path",
        "https://hooks.example.com:port/",
        "https://hooks.example.com/ x",
        "https://hooks.example.com/" + "x" * 2000,
    ],
)
def test_an_address_that_is_not_safe_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="url"):
        parse_webhook_url(url)


def test_hosts_and_ports_must_be_listed() -> None:
    hosts = WebhookHosts("hooks.example.com, 127.0.0.1:9000")
    hosts.check("https://HOOKS.example.com/x")
    hosts.check("http://127.0.0.1:9000/x")
    for url in (
        "https://hooks.example.com:8443/",
        "https://example.com/",
        "http://127.0.0.1:9001/",
        "https://hooks.example.com.evil.test/",
    ):
        with pytest.raises(NotAllowed):
            hosts.check(url)
    assert not WebhookHosts(" ,")


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "0.0.0.0", "192.168.1.1"]
)
def test_a_name_that_leads_to_an_internal_address_is_refused(address: str) -> None:
    with pytest.raises(OSError, match="internal"):
        checked_address("hooks.example.com", ["93.184.215.14", address])
    assert checked_address(address, [address]) == address


async def test_secrets_and_participants() -> None:
    async with aforesaid.open("memory://") as memory:
        firm = memory.of("firm")
        await firm.set_participant("roof", "bob")
        for secret in ("x", "whsec_", "whsec_!!!", "whsec_QUJD"):
            with pytest.raises(InvalidInput, match="secret"):
                await firm.set_webhook("bob", "https://hooks.example.com", secret=secret)
        given = new_secret()
        assert (await firm.set_webhook("bob", "https://hooks.example.com", secret=given)).secret == given
        with pytest.raises(NotAllowed):
            await firm.as_participant("bob").webhooks()
