"""Webhooks: addresses to which a server sends a participant's notifications, and their signatures."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from datetime import datetime
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from aforesaid.errors import InvalidInput, StoreDamaged
from aforesaid.model.mappings import ReadableAsDict

# The kind of the owner's documents with webhooks; the key is the participant.
WEBHOOKS = "notifications/webhooks"
# The kind of the journal's documents that name owners with webhooks, so that a server need not ask each.
WEBHOOK_OWNERS = "webhook-owners"

SECRET_PREFIX = "whsec_"
LONGEST_URL = 2_000
_SHORTEST_SECRET, _LONGEST_SECRET = 24, 64


class Webhook(ReadableAsDict, Struct, frozen=True, kw_only=True):
    """Where a participant's notifications are sent."""

    participant_id: str
    url: str
    secret: str
    """Signs what is sent: `whsec_` and 24 to 64 bytes in base64. Empty in lists."""
    created_at: datetime

    def __repr__(self) -> str:
        return f"Webhook(participant_id={self.participant_id!r}, url={self.url!r})"

    def to_dict(self) -> dict[str, object]:
        """Return every field as a JSON value."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def new_secret() -> str:
    """Return a random secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def parse_secret(secret: str) -> str:
    """Return a secret of the caller. Raise `InvalidInput`, which does not repeat it."""
    try:
        size = len(_key(secret)) if secret.startswith(SECRET_PREFIX) else 0
    except (binascii.Error, ValueError):
        size = 0
    if not _SHORTEST_SECRET <= size <= _LONGEST_SECRET:
        raise InvalidInput(
            f"secret must be {SECRET_PREFIX} and {_SHORTEST_SECRET} to {_LONGEST_SECRET} bytes in base64",
            field="secret",
        )
    return secret


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a request, in the form of the Standard Webhooks specification."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()


def parse_webhook_url(url: str) -> SplitResult:
    """Return the parts of a webhook's address. Raise `InvalidInput`.

    Only https is accepted, and http to this machine.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise _invalid(url, "a URL") from None
    if not host or len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise _invalid(url, f"a URL with a host, of at most {LONGEST_URL:,} printable ASCII characters")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("url must not contain a user name or a password", field="url")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise _invalid(url, "an https URL, or an http URL of this machine")
    return parts


def is_loopback(host: str) -> bool:
    """Return whether a host, as an address or `localhost`, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _invalid(url: str, expected: str) -> InvalidInput:
    return InvalidInput(f"url must be {expected}", field="url", value=url)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Webhook).decode


def encode_webhook(webhook: Webhook) -> bytes:
    """Return the stored form."""
    return _encode(webhook)


def decode_webhook(data: bytes) -> Webhook:
    """Return the webhook of the stored form. Raise `StoreDamaged`."""
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"a webhook is damaged: {error}") from error
