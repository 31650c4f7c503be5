"""The client against a real server, over a real socket: what only a pair of both can show."""

from collections.abc import Iterator

import pytest

from recollect.client import Client
from recollect.errors import ConversationNotFound
from recollect.ids import new_id
from tests.servers.remote import Served, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as running:
        yield running


def test_code_that_does_not_await(server: Served) -> None:
    with Client(server.url) as memory:
        erin = memory.of(f"erin-{new_id()}")
        kitchen = erin.get_or_create_conversation("kitchen")
        erin.add_message(kitchen.id, "user", "hello")
        with erin.turn(kitchen.id) as turn:
            turn.user("is it raining?")
            assert turn.context("openai_chat")[-1] == {"role": "user", "content": "is it raining?"}
            turn.assistant("No.")
        assert turn.stored is not None
        assert len(turn.stored.new) == 2
        assert [m.content for m in erin.messages(kitchen.id)] == ["hello", "is it raining?", "No."]
        with pytest.raises(ZeroDivisionError), erin.turn(kitchen.id) as lost:
            lost.user(str(1 // 0))
        assert lost.stored is None
        assert len(erin.messages(kitchen.id)) == 3
        assert erin.session("nowhere") is None
        with pytest.raises(ConversationNotFound) as missing:
            erin.get_conversation(new_id())
        assert missing.value.conversation_id in str(missing.value)


def test_contacts_are_found_behind_a_server(server: Served) -> None:
    with Client(server.url) as memory:
        erin = memory.of(f"erin-{new_id()}")
        ann = erin.clients.add("Ann Oakley")
        assert erin.clients.find("oakly") == [ann]
        assert erin.clients.find("nobody") == []
