"""Nova Sonic through Amazon's own SDK, whose serializer, signatures and HTTP/2 client are the real ones."""

import base64
import json
import logging
from pathlib import Path
from typing import Any

import awscrt.io
import pytest

from aforesaid.contracts import Audio
from aforesaid.errors import TranscriberUnavailable
from aforesaid.voice import NovaSonicTranscriber
from tests.adapters.nova.endpoint import KIND, Endpoint, exception

SAMPLES = b"\x00\x10\x00\xf0" * 8_000
SAID = "What grows behind the shed?"
PATIENCE = 120.0


def content(text: str, role: str, stage: str) -> list[dict[str, Any]]:
    fields = json.dumps({"generationStage": stage})
    return [
        {"event": {"contentStart": {"type": "TEXT", "role": role, "additionalModelFields": fields}}},
        {"event": {"textOutput": {"content": text, "role": role}}},
        {"event": {"contentEnd": {"type": "TEXT", "stopReason": "PARTIAL_TURN"}}},
    ]


SPOKEN = [
    {"event": {"completionStart": {}}},
    *content(SAID, "USER", "FINAL"),
    *content("Leeks.", "ASSISTANT", "SPECULATIVE"),
    {"event": {"completionEnd": {"stopReason": "END_TURN"}}},
]


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, and an HTTP client that trusts the endpoint's certificate."""

    class Trusting(awscrt.io.TlsContextOptions):
        def __init__(self) -> None:
            super().__init__()
            self.override_default_trust_store_from_path(None, str(tmp_path / "certificate.pem"))

    monkeypatch.setattr(awscrt.io, "TlsContextOptions", Trusting)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


async def transcribed(endpoint: Endpoint, folder: Path) -> str:
    async with endpoint.running(folder) as address:
        transcriber = NovaSonicTranscriber(region="us-east-1", endpoint=address, timeout=PATIENCE)
        return (await transcriber.transcribe(Audio(data=SAMPLES))).text


async def test_the_sdk_sends_every_event_and_reads_the_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(SPOKEN)
    with caplog.at_level(logging.ERROR):
        assert await transcribed(endpoint, tmp_path) == SAID
    names = [name for event in endpoint.events for name in event]
    sounds = names.count("audioInput")
    assert names == [
        *("sessionStart", "promptStart", "contentStart", "textInput", "contentEnd", "contentStart"),
        *(["audioInput"] * sounds),
        *("contentEnd", "promptEnd", "sessionEnd"),
    ]
    heard = [base64.b64decode(one["audioInput"]["content"]) for one in endpoint.events if "audioInput" in one]
    assert b"".join(heard) == SAMPLES
    assert caplog.records == []


async def test_the_request_is_signed_for_the_model(tmp_path: Path) -> None:
    endpoint = Endpoint(SPOKEN)
    await transcribed(endpoint, tmp_path)
    request = endpoint.request
    assert request[":method"] == "POST"
    assert request[":path"].startswith("/model/amazon.nova-sonic-v1%3A0/invoke-with-bidirectional-stream")
    assert request["content-type"] == KIND
    assert "Credential=AKIDEXAMPLE/" in request["authorization"]
    assert "/us-east-1/bedrock/aws4_request" in request["authorization"]
    # Each event has a signature that depends on the one before, and so has the end of the stream.
    assert len(set(endpoint.signatures)) == len(endpoint.events) + 1


async def test_the_request_ends_before_the_connection_is_closed(tmp_path: Path) -> None:
    endpoint = Endpoint(SPOKEN)
    await transcribed(endpoint, tmp_path)
    assert endpoint.ended.is_set()


async def test_an_exception_of_the_service_is_an_error_of_ours(tmp_path: Path) -> None:
    endpoint = Endpoint([], exception("modelTimeoutException", "secret"))
    with pytest.raises(TranscriberUnavailable, match="ModelTimeoutException") as failed:
        await transcribed(endpoint, tmp_path)
    assert "secret" not in str(failed.value)


async def test_an_exception_after_the_words_does_not_cost_them(tmp_path: Path) -> None:
    words = [*content(SAID, "USER", "FINAL"), {"event": {"completionEnd": {}}}]
    endpoint = Endpoint(words, exception("internalServerException", "too late"))
    assert await transcribed(endpoint, tmp_path) == SAID
