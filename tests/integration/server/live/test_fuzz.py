"""A short fuzz of the WebSocket; `python -m tests.integration.server.ws_fuzz` is the long one."""

from tests.integration.server.ws_fuzz import main


async def test_whatever_a_client_sends_the_server_stands() -> None:
    report = await main(frames=600, seed=7)
    assert report.frames >= 600
    assert report.undocumented == []
    assert report.statuses[422]
