"""First words of conversations, pictures beside the log, and a choice of what is forgotten."""

import base64
from hashlib import sha256
from pathlib import Path
from typing import Any

from aforesaid.memory.options import ImageOptions
from tests.integration.server.running import Running, serving

PICTURE = b"\x89PNG\r\n\x1a\n picture"


async def store(server: Running, session: str, *said: tuple[str, Any]) -> str:
    """Store messages; return the id of their conversation."""
    messages = [{"role": role, "content": content} for role, content in said]
    body = {"session_id": session, "messages": messages, "dialect": "anthropic"}
    answer = await server.client.post("/v1/sessions/turns", json=body)
    assert answer.status_code == 201, answer.text
    conversation: str = answer.json()["conversation"]["id"]
    return conversation


async def openings(server: Running) -> Any:
    return (await server.client.get("/v1/conversations?openings=true")).json()["openings"]


async def test_a_listing_has_the_first_words_of_the_user(server: Running) -> None:
    long = await store(server, "long", ("user", "a word " * 30), ("assistant", "Yes."))
    one = await store(server, "one", ("assistant", "Welcome!"), ("user", "hello\n  there"))
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PICTURE).decode()}
    picture = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    shown = await store(server, "shown", ("user", picture))
    await store(server, "none", ("assistant", "Welcome!"))
    assert await openings(server) == {
        long: "a word a word a word a word a word a word a word a word a…",
        one: "hello there",
        shown: "What is this?",
    }
    assert (await server.client.get("/v1/conversations")).json().get("openings", {}) == {}
    message = (await server.client.get(f"/v1/conversations/{one}/messages")).json()["entries"][1]["message"]
    body = {"message_id": message["message_id"]}
    redacted = await server.client.post(f"/v1/conversations/{one}/redactions", json=body)
    assert redacted.status_code == 200
    assert one not in await openings(server)


async def test_an_image_is_read_by_its_digest_from_its_own_conversation(tmp_path: Path) -> None:
    images = ImageOptions(policy="blobs", blobs=tmp_path / "blobs")
    async with serving(images=images) as server:
        data = base64.b64encode(PICTURE).decode()
        source = {"type": "base64", "media_type": "image/png", "data": data}
        one = await store(server, "one", ("user", [{"type": "image", "source": source}]))
        two = await store(server, "two", ("user", "hello"))
        log = (await server.client.get(f"/v1/conversations/{one}/messages")).json()
        (block,) = log["entries"][0]["message"]["content"]
        assert block["sha256"] == sha256(PICTURE).hexdigest()
        path = f"/v1/conversations/{one}/images/{block['sha256']}"
        found = await server.client.get(path)
        assert found.content == PICTURE
        assert found.headers["content-type"] == "application/octet-stream"
        assert found.headers["cache-control"] == "no-store"
        other = {"Aforesaid-Owner": "sam"}
        assert (await server.client.get(path, headers=other)).status_code == 404
        assert (await server.client.get(path.replace(one, two))).status_code == 404
        assert (await server.client.get(f"/v1/conversations/{one}/images/x")).status_code == 422


async def test_a_message_that_is_kept_is_not_forgotten(server: Running) -> None:
    one = await store(server, "one", ("user", "the safe code is 7788"), ("user", "7788 worked"))
    path = f"/v1/conversations/{one}/messages"
    first, second = (
        each["message"]["message_id"] for each in (await server.client.get(path)).json()["entries"]
    )
    named: dict[str, Any] = {"conversation_id": one, "message_id": first}
    refused = await server.client.post("/v1/forgetting", json=named | {"keep": [first]})
    assert refused.status_code == 422
    done = await server.client.post("/v1/forgetting", json=named | {"keep": [second]})
    assert done.json()["receipt"]["messages"] == 1
    contents = [each["message"]["content"] for each in (await server.client.get(path)).json()["entries"]]
    assert contents == ["[redacted]", "7788 worked"]
