"""A local endpoint of Nova Sonic: HTTP/2 over TLS, with the binary event stream of Amazon's services.

The events are decoded by the library that Amazon's SDK decodes them with, which checks lengths and checksums.
"""

import asyncio
import base64
import datetime
import io
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from smithy_aws_event_stream.events import Event, EventMessage

KIND = "application/vnd.amazon.eventstream"


class Endpoint:
    """Keeps what it receives, and answers when the prompt ends."""

    def __init__(self, answers: Sequence[dict[str, Any]], failure: EventMessage | None = None) -> None:
        self.answers = [encoded(answer) for answer in answers]
        self.failure = failure
        self.request: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        self.signatures: list[bytes] = []
        self.ended = asyncio.Event()
        self.port = 0
        self._rest = b""

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[str]:
        """Serve with a new certificate, which is in `folder`. Yield the address."""
        write_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        context.set_alpn_protocols(["h2"])
        async with await asyncio.start_server(self._serve, "localhost", 0, ssl=context) as server:
            yield f"https://localhost:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        try:
            while data := await self._exchange(connection, reader, writer):
                for event in connection.receive_data(data):
                    self._handle(connection, event)
        except ConnectionError:
            pass  # the client is gone
        finally:
            writer.close()

    async def _exchange(
        self, connection: H2Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        writer.write(connection.data_to_send())
        await writer.drain()
        return await reader.read(65_536)

    def _handle(self, connection: H2Connection, event: Any) -> None:
        match event:
            case RequestReceived():
                self.request = {name.decode(): value.decode() for name, value in event.headers}
                connection.send_headers(event.stream_id, [(":status", "200"), ("content-type", KIND)])
            case DataReceived():
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                for name in self._received(event.data):
                    if name == "promptEnd":
                        for answer in self.answers:
                            connection.send_data(event.stream_id, answer)
                        if self.failure is not None:
                            connection.send_data(event.stream_id, self.failure.encode())
            case StreamEnded():
                connection.end_stream(event.stream_id)
                self.ended.set()

    def _received(self, data: bytes) -> list[str]:
        """Decode complete messages; return the names of their events."""
        self._rest += data
        names = []
        while len(self._rest) >= 4 and len(self._rest) >= (size := int.from_bytes(self._rest[:4])):
            message, self._rest = self._rest[:size], self._rest[size:]
            names += self._decoded(message)
        return names

    def _decoded(self, data: bytes) -> list[str]:
        """Decode a signed message, which contains the message of the event; a signed empty one is the end."""
        signed = _message(data)
        self.signatures.append(signed.headers[":chunk-signature"])
        if not signed.payload:
            return []
        message = _message(signed.payload)
        assert message.headers[":message-type"] == "event"
        assert message.headers[":event-type"] == "chunk"
        event = json.loads(base64.b64decode(json.loads(message.payload)["bytes"]))["event"]
        self.events.append(event)
        return list(event)


def _message(data: bytes) -> EventMessage:
    event = Event.decode(io.BytesIO(data))
    assert event is not None
    return event.message


def encoded(answer: dict[str, Any]) -> bytes:
    """Encode an answer as the service does."""
    payload = {"bytes": base64.b64encode(json.dumps(answer).encode()).decode()}
    headers = {":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}
    return EventMessage(headers=headers, payload=json.dumps(payload).encode()).encode()


def exception(name: str, message: str) -> EventMessage:
    """Return an exception of the service."""
    headers = {":message-type": "exception", ":exception-type": name, ":content-type": "application/json"}
    return EventMessage(headers=headers, payload=json.dumps({"message": message}).encode())


def write_certificate(folder: Path) -> None:
    """Write a certificate for `localhost` that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(secret)
