"""When things go wrong: clear errors of our own, nothing stored twice, nothing closed that is not ours."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from aforesaid.errors import (
    InvalidSetting,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreForeign,
    StoreUnavailable,
)
from aforesaid.model.conversations import Changes, Query, started
from aforesaid.model.ids import new_id
from aforesaid.model.messages import Message
from aforesaid.stores.redis import RedisBackend
from aforesaid.stores.redis.addresses import make_client, parse_target
from aforesaid.stores.redis.backend import FORMAT
from aforesaid.stores.redis.connections import Bounds
from aforesaid.stores.urls import backend_for
from tests.chaos.proxy import Proxy
from tests.servers.ports import free_port
from tests.servers.redis import client, running

CONNECTIONS = 8
TURN = [Message(role="user", content="hello"), Message(role="assistant", content="hi")]


@asynccontextmanager
async def opened(source: Any, **options: Any) -> AsyncIterator[RedisBackend]:
    backend = RedisBackend(source, **options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


class TestAddresses:
    def test_a_url_says_where_and_how(self) -> None:
        target = parse_target("rediss://erin:s%40crt@example.org:7000/3")
        assert (target.hosts, target.tls, target.cluster) == ((("example.org", 7000),), True, False)
        assert (target.username, target.password, target.database) == ("erin", "s@crt", 3)
        assert "crt" not in target.name

    def test_a_cluster_may_be_named_by_several_nodes(self) -> None:
        target = parse_target("redis+cluster://:pw@a:1,b,[::1]:3")
        assert target.hosts == (("a", 1), ("b", 6379), ("::1", 3))
        assert (target.cluster, target.tls, target.username, target.password) == (True, False, None, "pw")

    @pytest.mark.parametrize(
        "url",
        [
            "redis://host:port",
            "redis://host/name",
            "redis://a,b",
            "redis+cluster://host/1",
            "redis+sentinel://host",
            "http://host",
            "redis://host?prefix=x",
        ],
    )
    def test_what_is_no_address_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidSetting):
            parse_target(url)

    def test_options_stand_behind_the_url(self) -> None:
        backend = backend_for("redis://localhost?prefix=kitchen&max_connections=3&timeout=1.5")
        assert isinstance(backend, RedisBackend)
        assert backend.prefix == "kitchen"

    @pytest.mark.parametrize(
        "options", ["colour=red", "max_connections=many", "max_connections=0", "timeout=0", "prefix={x}"]
    )
    def test_options_that_are_none_are_refused(self, options: str) -> None:
        with pytest.raises(ValueError, match=r"colour|max_connections|timeout|prefix"):
            backend_for(f"redis://localhost?{options}")

    async def test_prefixes_are_worlds_of_their_own(self, redis_url: str) -> None:
        async with opened(redis_url, prefix="one") as one, opened(redis_url, prefix="two") as two:
            record = await one.of("erin").create(started(new_id(), now=one.clock()))
            assert await two.of("erin").get(record.id) is None
            assert [owner async for owner in two.owners()] == []
            await one.of("erin").delete(record.id)


class TestOpening:
    async def test_a_server_that_is_not_there_is_named(self) -> None:
        port = free_port()
        for scheme in ("redis", "redis+cluster"):
            backend = RedisBackend(f"{scheme}://:sesame@127.0.0.1:{port}")
            with pytest.raises(StoreUnavailable, match=str(port)) as caught:
                await backend.open()
            assert "sesame" not in str(caught.value)
            await backend.close()

    async def test_before_opening_nothing_works(self) -> None:
        backend = RedisBackend("redis://localhost")
        with pytest.raises(StoreClosed):
            await backend.of("erin").find(Query())

    async def test_a_wrong_password_is_refused_without_repeating_it(self) -> None:
        with running("--requirepass", "sesame") as port:
            with pytest.raises(StoreError, match="refused access") as caught:
                await RedisBackend(f"redis://:guess@127.0.0.1:{port}").open()
            assert "guess" not in str(caught.value)
            async with opened(f"redis://:sesame@127.0.0.1:{port}") as backend:
                assert await backend.of("erin").find(Query())

    async def test_a_newer_format_is_left_as_it_is(self, redis_url: str) -> None:
        async with opened(redis_url) as backend:
            for found in (str(FORMAT + 1), "something else"):
                await backend.connections.call("SET", "newer:format", found)
                with pytest.raises(StoreForeign, match="newer"):
                    await RedisBackend(redis_url, prefix="newer").open()
                assert await backend.connections.call("GET", "newer:format") == found.encode()
            await backend.connections.call("DEL", "newer:format")

    async def test_a_node_of_a_cluster_says_which_url_to_use(self, redis_cluster_url: str) -> None:
        with pytest.raises(InvalidSetting, match=r"redis\+cluster://"):
            await RedisBackend(redis_cluster_url.replace("+cluster", "")).open()

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            (["--appendonly", "no", "--save", ""], "stores nothing on disk"),
            (["--appendonly", "no", "--save", "3600 1"], "only at intervals"),
            (["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], "memory is full"),
            ([], None),
        ],
    )
    async def test_a_server_set_up_to_lose_data_is_mentioned_in_the_log(
        self, settings: list[str], words: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running(*settings) as port, caplog.at_level(logging.WARNING, "aforesaid.stores.redis"):
            async with opened(f"redis://127.0.0.1:{port}", eviction="accept"):
                pass
        texts = [record.getMessage() for record in caplog.records]
        assert ([words in text for text in texts] == [True]) if words else (texts == [])

    async def test_a_server_that_does_not_tell_its_settings_is_used_all_the_same(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with running() as port, client(port) as admin:
            rules = ["on", ">pw", "~*", "&*", "+@all", "-config", "-info"]
            admin.execute_command("ACL", "SETUSER", "app", *rules)
            with caplog.at_level(logging.INFO, "aforesaid.stores.redis"):
                async with opened(f"redis://app:pw@127.0.0.1:{port}") as backend:
                    assert await backend.of("erin").find(Query())
        assert ["does not report" in record.getMessage() for record in caplog.records] == [True]

    def test_without_the_driver_it_says_what_to_install(self) -> None:
        code = (
            "import sys; sys.modules['redis'] = None\n"
            "from aforesaid.errors import MissingExtra\n"
            "from aforesaid.stores.urls import backend_for\n"
            "try: backend_for('redis://localhost')\n"
            "except MissingExtra as error: print(error)"
        )
        path = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
        said = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, check=True)
        assert b"pip install 'aforesaid[redis]'" in said.stdout

    @pytest.mark.parametrize("url", ["rediss://h:1/2", "rediss+cluster://127.0.0.1:1"])
    def test_tls_checks_certificates_by_default(self, url: str) -> None:
        for tls, expected in (({}, "required"), ({"ssl_cert_reqs": "none"}, "none")):
            made: Any = make_client(parse_target(url), connections=1, tls=tls)
            if isinstance(made, RedisCluster):
                kind, settings = made.connection_kwargs["connection_class"], made.connection_kwargs
            else:
                kind, settings = made.connection_pool.connection_class, made.connection_pool.connection_kwargs
            assert kind is SSLConnection
            assert settings.get("ssl_cert_reqs", "required") == expected


class TestClients:
    @pytest.mark.parametrize("options", [{}, {"decode_responses": True}, {"protocol": 3}], ids=str)
    async def test_a_client_that_was_handed_in_stays_open(
        self, redis_url: str, options: dict[str, Any]
    ) -> None:
        handed: Any = Redis.from_url(redis_url, **options)
        async with opened(handed) as backend:
            store = backend.of("erin")
            record = await store.create(started(new_id(), now=store.now()))
            appended = await store.append(record.id, TURN)
            assert await store.page(record.id, limit=9) == list(appended.new)
            async with store.watch() as changes:
                await store.delete(record.id)
                change = await asyncio.wait_for(anext(changes), 120)
                assert (change.conversation_id, change.revision) == (record.id, None)
        assert await handed.ping()
        await handed.aclose()

    async def test_a_cluster_client_stays_open_too(self, redis_cluster_url: str) -> None:
        host, port = redis_cluster_url.rpartition("//")[2].split(":")
        handed: Any = RedisCluster(host=host, port=int(port), retry=Retry(NoBackoff(), 0))
        async with opened(handed) as backend:
            store = backend.of("erin")
            record = await store.create(started(new_id(), now=store.now()))
            await store.append(record.id, TURN)
            await store.delete(record.id)
        assert await handed.ping()
        await handed.aclose()

    async def test_a_cluster_client_that_repeats_commands_is_refused(self) -> None:
        with pytest.raises(InvalidSetting, match="retry"):
            await RedisBackend(RedisCluster(host="127.0.0.1", port=1)).open()


async def test_a_user_with_the_documented_rights_can_do_everything() -> None:
    rights = re.search(r"`(~aforesaid:\* [^`]*)`", DOCUMENTATION.read_text())
    assert rights
    with running() as port, client(port) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", *rights[1].split())
        async with opened(f"redis://app:pw@127.0.0.1:{port}") as backend:
            store = backend.of("erin")
            async with store.watch() as changes:
                record = await store.resume("kitchen", started(new_id(), now=store.now()))
                assert (await anext(changes)).revision == 0
                await store.append(record.id, [*TURN, Message(role="user", content=1, message_id="m1")])
                assert (await anext(changes)).revision == 1
            await store.rewrite(record.id, TURN)
            await store.update(record.id, Changes(subject="roof", ttl=None))
            assert len(await store.tail(record.id, limit=5)) == 2
            await store.bind("phone", record.id)
            await store.unbind("phone")
            assert len((await store.find(Query())).conversations) == 1
            assert [owner async for owner in backend.owners()] == ["erin"]
            assert await backend.purge_expired() == 0
            await store.delete(record.id)
        assert sorted(admin.keys("*")) == [b"aforesaid:format", b"aforesaid:identity"]


DOCUMENTATION = Path(__file__).parents[3] / "docs" / "stores" / "redis.md"


class LossyLine:
    """A way to the server that can lose an answer: the command arrives, and then the line is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.losing: bytes | None = None
        self.lost = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, caller: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        replies, onward = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            while data := await caller.read(1 << 20):
                onward.write(data)
                reply = await replies.read(1 << 20)
                if self.losing and self.losing in data:
                    self.lost += 1
                    break
                answers.write(reply)
        finally:
            onward.close()
            answers.close()


class TestLosses:
    @pytest.mark.parametrize("handed_in", [False, True], ids=["own client", "client that retries"])
    async def test_a_turn_whose_answer_was_lost_is_not_stored_twice(self, handed_in: bool) -> None:
        with running() as port:
            line = LossyLine(port)
            async with line.open() as lossy:
                url = f"redis://127.0.0.1:{lossy}"
                source: Any = Redis.from_url(url, retry=Retry(NoBackoff(), 3)) if handed_in else url
                async with opened(source) as backend:
                    store = backend.of("erin")
                    record = await store.create(started(new_id(), now=store.now()))
                    await store.append(record.id, TURN)
                    line.losing = b"hello again"
                    with pytest.raises(StoreUnavailable):
                        await store.append(record.id, [Message(role="user", content="hello again")])
                    line.losing = None
                    entries = await store.page(record.id, limit=9)
                    assert [e.message.content for e in entries] == ["hello", "hi", "hello again"]
                    assert line.lost == 1
                if handed_in:
                    await source.aclose()

    async def test_scripts_that_the_server_forgot_are_sent_again(self, any_redis_url: str) -> None:
        async with opened(any_redis_url) as backend:
            store = backend.of(f"erin-{new_id()}")
            record = await store.create(started(new_id(), now=store.now()))
            await self.everywhere(backend, "SCRIPT", "FLUSH")
            await store.append(record.id, TURN)
            await self.everywhere(backend, "SCRIPT", "FLUSH")
            assert len(await store.tail(record.id, limit=9)) == 2
            await store.delete(record.id)

    async def everywhere(self, backend: RedisBackend, *command: str) -> None:
        connections: Any = backend.connections
        if connections.clustered:
            for node in connections._client.get_primaries():
                await node.execute_command(*command)
        else:
            await connections.call(*command)

    async def test_a_server_that_went_away_is_unavailable_and_welcome_back(self, tmp_path: Any) -> None:
        with running(folder=tmp_path) as port:
            backend = RedisBackend(f"redis://127.0.0.1:{port}")
            await backend.open()
            store = backend.of("erin")
            record = await store.create(started(new_id(), now=store.now()))
            await store.append(record.id, TURN)
        for attempt in (store.append(record.id, TURN), store.find(Query()), store.get(record.id)):
            with pytest.raises(StoreUnavailable, match=str(port)):
                await attempt
        with running(folder=tmp_path, port=port):
            assert len(await store.page(record.id, limit=9)) == 2
            await store.append(record.id, TURN)
            await backend.close()

    async def test_connections_that_the_server_dropped_are_replaced(self, redis_url: str) -> None:
        async with opened(redis_url) as backend, opened(redis_url) as other:
            store = backend.of("erin")
            record = await store.create(started(new_id(), now=store.now()))
            await other.connections.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            turn = [Message(role="user", content="hello", message_id="m1")]
            for _ in range(3):
                # Until the news of the hang-up has arrived, a command may still go down the dead line.
                with contextlib.suppress(StoreUnavailable):
                    await store.append(record.id, turn)
            assert len((await store.append(record.id, turn)).known) == 1
            await store.delete(record.id)

    async def test_a_reset_of_all_connections_fails_one_command_at_most(self) -> None:
        with running() as port:
            proxy = Proxy(port)
            await proxy.start()
            async with opened(f"redis://127.0.0.1:{proxy.port}") as backend:
                store = backend.of("ann")
                await asyncio.gather(*(store.get(new_id()) for _ in range(CONNECTIONS)))
                proxy.become("reset")
                with contextlib.suppress(StoreUnavailable):
                    await store.get(new_id())
                assert await asyncio.gather(*(store.get(new_id()) for _ in range(CONNECTIONS)))
            await proxy.stop()

    async def test_a_server_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with running() as port, client(port) as admin:
            async with opened(f"redis://127.0.0.1:{port}", timeout=3600) as backend:
                store = backend.of("erin")
                record = await store.create(started(new_id(), now=store.now()))
                server = admin.info("server")["process_id"]
                os.kill(server, signal.SIGSTOP)
                try:
                    with monkeypatch.context() as hurried, pytest.raises(StoreUnavailable, match="in time"):
                        hurried.setattr(backend.connections, "_bounds", Bounds(commands=9, seconds=0.1))
                        await store.append(record.id, TURN)
                finally:
                    os.kill(server, signal.SIGCONT)
                assert len(await store.page(record.id, limit=9)) in (0, 2)

    async def test_a_full_server_is_unavailable_and_nothing_is_half_stored(self) -> None:
        with running("--maxmemory-policy", "noeviction") as port, client(port) as admin:
            async with opened(f"redis://127.0.0.1:{port}") as backend:
                store = backend.of("erin")
                record = await store.create(started(new_id(), now=store.now()))
                before = await store.get(record.id)
                admin.config_set("maxmemory", 1)
                with pytest.raises(StoreUnavailable, match="memory"):
                    await store.append(record.id, TURN)
                assert await store.get(record.id) == before
                assert await store.page(record.id, limit=9) == []

    async def test_what_cannot_be_read_is_reported(self, redis_url: str) -> None:
        async with opened(redis_url) as backend:
            store = backend.of("erin")
            record = await store.create(started(new_id(), now=store.now()))
            keys = store._keys.of(record.id)
            await backend.connections.call("ZADD", keys.log, 0, "garbage")
            with pytest.raises(StoreDamaged, match=record.id):
                await store.page(record.id, limit=1)
            await backend.connections.call("HSET", keys.record, "channel", "smoke signals")
            with pytest.raises(StoreDamaged, match=record.id):
                await store.get(record.id)
            await backend.connections.call("DEL", keys.log)
            await backend.connections.call("SET", keys.log, "text")
            with pytest.raises(StoreDamaged, match="values of another type"):
                await store.page(record.id, limit=1)
            await store.delete(record.id)

    async def test_a_record_that_cannot_be_read_is_reported_and_the_others_are_listed(
        self, any_redis_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with opened(any_redis_url) as backend:
            store = backend.of(f"erin-{new_id()}")
            good, bad = [await store.create(started(new_id(), now=store.now())) for _ in range(2)]
            await backend.connections.call("HSET", store._keys.of(bad.id).record, "revision", "many")
            assert (await store.find(Query())).conversations == (good,)
            assert await store.purge_expired() == 0
            assert any(bad.id in record.getMessage() for record in caplog.records)
            with pytest.raises(StoreDamaged, match=bad.id):
                await store.get(bad.id)
            await store.delete(bad.id)
            assert await store.get(bad.id) is None
            await store.delete(good.id)

    async def test_closing_waits_for_what_was_accepted(self, redis_url: str) -> None:
        backend = RedisBackend(redis_url, max_connections=4)
        await backend.open()
        store = backend.of(f"erin-{new_id()}")
        record = await store.create(started(new_id(), now=store.now()))
        writes = [asyncio.ensure_future(store.append(record.id, TURN)) for _ in range(20)]
        await asyncio.sleep(0)
        await backend.close()
        results = await asyncio.gather(*writes, return_exceptions=True)
        refused = [result for result in results if isinstance(result, BaseException)]
        assert all(isinstance(error, StoreClosed) for error in refused)
        async with opened(redis_url) as again:
            stored = await again.of(store._connection.owner).page(record.id, limit=99)
            assert len(stored) == 2 * (len(results) - len(refused))
            await again.of(store._connection.owner).delete(record.id)

    async def test_who_is_cancelled_while_closing_leaves_no_connection(self) -> None:
        with running() as port, client(port) as admin:
            backend = RedisBackend(f"redis://127.0.0.1:{port}", max_connections=1, timeout=600)
            await backend.open()
            server = admin.info("server")["process_id"]
            os.kill(server, signal.SIGSTOP)
            try:
                under_way, in_line = [asyncio.create_task(backend.of("erin").find(Query())) for _ in range(2)]
                await asyncio.sleep(0)
                closing = asyncio.create_task(backend.close())
                await asyncio.sleep(0)
                closing.cancel()
                async with asyncio.timeout(60):
                    with pytest.raises(asyncio.CancelledError):
                        await closing
                    with pytest.raises(StoreUnavailable):
                        await under_way
                    with pytest.raises(StoreClosed):
                        await in_line
            finally:
                os.kill(server, signal.SIGCONT)
            await backend.close()
