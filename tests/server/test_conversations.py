"""Conversations and messages over HTTP, on a real socket."""

from uuid import uuid4

from tests.server.running import serving


async def test_a_turn_is_stored_and_read_back() -> None:
    async with serving() as server:
        opened = (await server.client.post("/v1/conversations", json={"session_id": "kitchen"})).json()
        turn = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
        stored = await server.client.post(f"/v1/conversations/{opened['id']}/turns", json=turn)
        assert stored.status_code == 201, stored.text
        assert stored.json()["conversation"]["message_count"] == 2
        assert stored.headers["etag"] == f'"{stored.json()["conversation"]["revision"]}"'
        page = (await server.client.get(f"/v1/conversations/{opened['id']}/messages")).json()
        assert [entry["message"]["content"] for entry in page["entries"]] == ["hi", "hello"]
        assert page["next"] is None


async def test_what_is_not_there_is_a_problem() -> None:
    async with serving() as server:
        missing = str(uuid4())
        answer = await server.client.get(f"/v1/conversations/{missing}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "urn:recollect:problem:conversation-not-found"
        assert answer.json()["conversation_id"] == missing
