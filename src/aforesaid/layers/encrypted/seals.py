"""Seal messages, documents, fields and tags, and open them. Pure, except for random nonces.

Role, time and id of a message stay in plain text, because stores order, count and find by them. Everything
else (content, tags, agent, content type, dialect, token counts) is one ciphertext, AES-256-GCM, written

    content   <fingerprint>.<key id>.<base64 of nonce, ciphertext and tag>

The associated data bind the ciphertext to its place: owner, conversation, role, id, time, sequence number and
revision. The head lists the places of a log; see `heads`. The fingerprint is a keyed digest of content,
conversation and id: with it a store recognizes a repeated write without reading either.
"""

import hmac
import os
import secrets
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import force_setattr

from aforesaid.contracts import Entry, unreadable_entry
from aforesaid.encryption import KEY_BYTES, NONCE_BYTES, aes_gcm
from aforesaid.errors import MissingExtra, StoreDamaged
from aforesaid.model.clock import to_micros
from aforesaid.model.ids import MARK
from aforesaid.model.messages import ROLES, SEALED, ContentType, Message, Speech, plain_text, words_of
from aforesaid.model.wire import check_json, decode_message, encode_message

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV
except ImportError:
    raise MissingExtra("encryption", extra="encryption") from None

_encode = msgspec.json.Encoder().encode
_base64 = msgspec.json.Decoder(bytes).decode
_FINGERPRINT_BYTES = 16
_MAGIC = b"AS1"
_KEY_ID_LENGTH = 8


class InvalidSeal(Exception):
    """The stored value was not sealed for this place, or was changed. The message gives the reason."""


class DataKey:
    """The key of one owner's data, and the keys derived from it for each use."""

    __slots__ = ("_tags", "cipher", "fingerprints", "id", "secret")

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        self.secret = secret
        self.cipher = aes_gcm(_derived(secret, b"data"))
        self.fingerprints = _derived(secret, b"fingerprints")
        self._tags: AESSIV | None = None

    @classmethod
    def generate(cls) -> "DataKey":
        return cls(secrets.token_hex(_KEY_ID_LENGTH // 2), secrets.token_bytes(KEY_BYTES))

    @property
    def tags(self) -> "AESSIV":
        """The deterministic cipher: a tag looks the same each time, so that it can be searched for."""
        if self._tags is None:
            self._tags = AESSIV(_derived(self.secret, b"tags/1") + _derived(self.secret, b"tags/2"))
        return self._tags


def _derived(secret: bytes, use: bytes) -> bytes:
    return hmac.digest(secret, b"aforesaid/1 " + use, "sha256")


class DataKeys:
    """An owner's data keys: the first seals, all open."""

    __slots__ = ("_by_id", "current")

    def __init__(self, keys: Sequence[DataKey]) -> None:
        self.current = keys[0]
        self._by_id = {key.id: key for key in keys}

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._by_id

    def every(self) -> list[DataKey]:
        return list(self._by_id.values())

    def get(self, key_id: str) -> DataKey:
        """Return the key with this id. Raise `InvalidSeal`."""
        try:
            return self._by_id[key_id]
        except KeyError:
            at_hand = ", ".join(self._by_id)
            raise InvalidSeal(
                f"it is sealed with data key {key_id}, which is not at hand here (at hand: {at_hand})"
            ) from None


# Messages


class _Words(Struct, frozen=True, omit_defaults=True, gc=False):
    """The sealed fields of a message, with their names and defaults."""

    content: Any = UNSET
    content_type: ContentType = "text"
    agent_name: str | None = None
    tags: tuple[str, ...] = ()
    dialect: str = "plain"
    extra: dict[str, Any] = {}
    speech: Speech | None = None
    tokens: dict[str, int] = {}
    author: str | None = None


def body_of(message: Message) -> bytes:
    """Return the sealed fields of a message as JSON, without the opening brace. Raise `InvalidInput`."""
    if plain_text(message) is None:
        check_json([None if message.content is UNSET else message.content, message.extra], field="content")
    words = _Words(
        message.content,
        message.content_type,
        message.agent_name,
        message.tags,
        message.dialect,
        message.extra,
        message.speech,
        message.tokens,
        message.author,
    )
    try:
        return _encode(words)[1:]
    except (UnicodeEncodeError, TypeError, RecursionError):
        # Half of a surrogate pair, or a subclass of text or number: only the general encoder handles these.
        body = encode_message(message.with_(timestamp=None, message_id=None))
        return body[body.index(b",") + 1 :]  # the role comes first, and content or extra always after it


class Place(NamedTuple):
    """The place of a message: its sequence number, the revision that wrote it, and the log's generation."""

    sequence: int
    revision: int
    generation: str


def seal(
    message: Message,
    body: bytes,
    key: DataKey,
    log_id: "LogId",
    place: Place | None,
    *,
    timestamp: datetime,
    fingerprint: str,
    nonce: bytes,
) -> Message:
    """Return the message as it is stored at this time. Without a place it is sealed for the spool."""
    # In one function without helpers: every message of a turn passes here.
    bound_to = log_id.associated_data(message.role, to_micros(timestamp), message.message_id, place)
    sealed = b2a_base64(nonce + key.cipher.encrypt(nonce, body, bound_to), newline=False).decode("ascii")
    mark = SPOOLED if place is None else f"{place.generation}{GENERATION_SEPARATOR}"
    # A copy of a blank message: only the fields that are set here are stored in plain text. The copy skips
    # the validation of `Message`, which costs more than the cipher.
    stored: Message = _copied(_BLANK[message.role])
    force_setattr(stored, "content", f"{fingerprint}.{key.id}.{mark}{sealed}")
    force_setattr(stored, "timestamp", timestamp)
    force_setattr(stored, "message_id", message.message_id)
    return stored


def new_nonces(count: int) -> list[bytes]:
    """Return random nonces, drawn in one system call.

    They are never pooled across turns: a process that forks would use the rest of the pool twice, and a
    repeated nonce breaks AES-GCM.
    """
    drawn = os.urandom(NONCE_BYTES * count)
    return [drawn[start : start + NONCE_BYTES] for start in range(0, len(drawn), NONCE_BYTES)]


# Separates the generation of the log from the ciphertext.
GENERATION_SEPARATOR = ":"
# Precedes the ciphertext of a message that has no place in a log yet.
SPOOLED = "~"

_BLANK = {role: Message(role=role, content="", dialect=SEALED) for role in ROLES}
_copied = methodcaller("__copy__")


def fingerprint_of(message: Message, key: DataKey, log_id: "LogId") -> str:
    """Return a keyed digest of the content, compared when the id is sent again; empty without an id."""
    if message.message_id is None:
        return ""
    plain = plain_text(message)
    text = f"{message.role} json {words_of(message)}" if plain is None else f"{message.role} text {plain}"
    data = log_id.fingerprint_prefix(message.message_id) + text.encode("utf-8", "surrogatepass")
    return blake2b(data, key=key.fingerprints, digest_size=_FINGERPRINT_BYTES).hexdigest()


class LogId(NamedTuple):
    """The owner and the conversation: every message of a log is bound to them."""

    owner: str
    conversation_id: str

    def associated_data(self, role: str, at: int, message_id: str | None, place: Place | None) -> bytes:
        """Return what binds a message to its place."""
        # The layer may generate an id for a message without one, so that a repeated write is recognized. It
        # is not part of the message.
        bound_id = None if message_id is not None and message_id.startswith(MARK) else message_id
        return _encode(("message", self.owner, self.conversation_id, role, at, bound_id, place))

    def fingerprint_prefix(self, message_id: str) -> bytes:
        """Return what a fingerprint covers besides the content."""
        return _encode(("words", self.owner, self.conversation_id, message_id))


def as_unreadable(entry: Entry, why: str) -> Entry:
    """Return the entry as unreadable, with the reason."""
    where = {"revision": entry.revision, "stored_at": entry.stored_at}
    return unreadable_entry(entry.conversation_id, entry.position, **where, why=why)  # type: ignore[arg-type]


def key_ids_of(entries: Sequence[Entry]) -> set[str]:
    """Return the ids of the data keys that these entries were sealed with."""
    return {key_id for entry in entries if (key_id := key_id_of(entry.message)) is not None}


def key_id_of(message: Message) -> str | None:
    """Return the id of the data key of a stored message; None when it is not sealed."""
    if message.dialect != SEALED or not isinstance(message.content, str):
        return None
    parts = message.content.split(".", 2)
    return parts[1] if len(parts) == 3 else None


class Opened(Struct, frozen=True, gc=False):
    """A stored entry and the entry that was decrypted from it."""

    stored: Entry
    entry: Entry
    generation: str
    """The generation that the stored message was sealed for."""

    def is_from(self, stored: Entry) -> bool:
        """Return whether the entry was decrypted from this one. Compare everything that the seal binds."""
        mine, other = self.stored.message, stored.message
        return (
            mine.content == other.content
            and self.stored.sequence == stored.sequence
            and self.stored.revision == stored.revision
            and self.stored.stored_at == stored.stored_at
            and mine.timestamp == other.timestamp
            and mine.message_id == other.message_id
            and mine.role == other.role
            and other.dialect == SEALED
        )


def unseal(
    stored: Message, sequence: int, revision: int, keys: DataKeys, log_id: LogId, *, spooled: bool = False
) -> Message:
    """Return the message that was sealed for this place, or for the spool. Raise `InvalidSeal`."""
    sealed, timestamp = stored.content, stored.timestamp
    if stored.dialect != SEALED or type(sealed) is not str or timestamp is None:
        raise InvalidSeal("it is not encrypted, as all in this store must be, and is refused")
    _, _, rest = sealed.partition(".")
    key_id, _, text = rest.partition(".")
    generation, mark, ciphertext = text.partition(GENERATION_SEPARATOR)
    place = Place(sequence, revision, generation) if mark else None
    if place is None:
        if not spooled:
            raise InvalidSeal("it was sealed for the spool, not for a place in this log, and is refused")
        ciphertext = text.removeprefix(SPOOLED)
    bound_to = log_id.associated_data(stored.role, to_micros(timestamp), stored.message_id, place)
    return _message(stored, _unsealed(keys.get(key_id), ciphertext, bound_to))


def generation_of(stored: Message) -> str:
    """Return the generation that a stored message was sealed for; empty if it was sealed for none."""
    content = stored.content
    if stored.dialect != SEALED or type(content) is not str:
        return ""
    generation, mark, _ = content.rpartition(".")[2].partition(GENERATION_SEPARATOR)
    return generation if mark else ""


def warm() -> None:
    """Seal and open some messages, so that the first window does not wait for one-time initialization."""
    key = DataKey.generate()
    keys, log_id = DataKeys([key]), LogId("warm-up", "00000000-0000-0000-0000-000000000000")
    message = Message(role="user", content="hello", message_id="1", tokens={"words": 1})
    now = datetime.now(UTC)
    for place in (Place(number, 1, "life") for number in range(_OFTEN)):
        mark = fingerprint_of(message, key, log_id)
        body = body_of(message)
        (nonce,) = new_nonces(1)
        sealed = seal(message, body, key, log_id, place, timestamp=now, fingerprint=mark, nonce=nonce)
        unseal(sealed, place.sequence, place.revision, keys, log_id)


# Calls after which the interpreter has specialized a function.
_OFTEN = 10


def _message(stored: Message, body: bytes) -> Message:
    """Decode the message. Its body is authentic and was validated before it was sealed."""
    try:
        words = _words(b"{" + body)
    except (msgspec.MsgspecError, RecursionError):
        return _odd_message(stored, body)
    message: Message = _copied(stored)
    force_setattr(message, "content", words.content)
    force_setattr(message, "dialect", words.dialect)
    force_setattr(message, "tokens", words.tokens)
    if words.tags:
        force_setattr(message, "tags", words.tags)
    if words.agent_name is not None:
        force_setattr(message, "agent_name", words.agent_name)
    if words.author is not None:
        force_setattr(message, "author", words.author)
    if words.extra:
        force_setattr(message, "extra", words.extra)
    if words.speech is not None:
        force_setattr(message, "speech", words.speech)
    if words.content_type != "text":
        force_setattr(message, "content_type", words.content_type)
    return message


def _odd_message(stored: Message, body: bytes) -> Message:
    """Decode a message that only the general decoder reads, such as half of a surrogate pair. Raise
    `InvalidSeal`."""
    try:
        message = decode_message(f'{{"role":"{stored.role}",'.encode() + body)
    except StoreDamaged as error:
        raise InvalidSeal(str(error)) from error
    return message.with_(timestamp=stored.timestamp, message_id=stored.message_id, tokens=message.tokens)


_words = msgspec.json.Decoder(_Words).decode


# Everything else


def seal_bytes(data: bytes, key: DataKey, bound_to: bytes) -> bytes:
    """Return data as they are stored: a mark, the key's id, nonce, ciphertext and tag."""
    nonce = os.urandom(NONCE_BYTES)
    return _MAGIC + key.id.encode() + nonce + key.cipher.encrypt(nonce, data, bound_to)


def sealed_by(data: bytes) -> str:
    """Return the id of the key that data were sealed with. Raise `InvalidSeal`."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise InvalidSeal("it is not encrypted, as all in this store must be, and is refused")
    return data[len(_MAGIC) : len(_MAGIC) + _KEY_ID_LENGTH].decode("ascii", "replace")


def open_bytes(data: bytes, keys: DataKeys, bound_to: bytes) -> bytes:
    """Return the decrypted data. Raise `InvalidSeal`."""
    key = keys.get(sealed_by(data))
    return _opened(key, data[len(_MAGIC) + _KEY_ID_LENGTH :], bound_to)


def seal_text(plain: bytes, key: DataKey, bound_to: bytes) -> str:
    """Return a field of a record, or the head of a log, as it is stored."""
    return f"{key.id}.{_sealed(key, plain, bound_to)}"


def key_id_in(text: str) -> str:
    """Return the id of the key that a field or a tag was sealed with. Raise `InvalidSeal`."""
    key_id, dot, _ = text.partition(".")
    if not dot or len(key_id) != _KEY_ID_LENGTH or not set(key_id) <= set("0123456789abcdef"):
        raise InvalidSeal("it is not encrypted, as all in this store must be, and is refused")
    return key_id


def open_text(sealed: str, keys: DataKeys, bound_to: bytes) -> bytes:
    """Return the decrypted text. Raise `InvalidSeal`."""
    key_id, dot, rest = sealed.partition(".")
    if not dot:
        raise InvalidSeal("it is not encrypted, as all in this store must be, and is refused")
    return _unsealed(keys.get(key_id), rest, bound_to)


# Precedes the proof in the list of tags.
TAGS_MARK = "="


def seal_tags(tags: Sequence[str], key: DataKey, log_id: LogId) -> tuple[str, ...]:
    """Return the tags as they are stored, plus a proof that the record has exactly these tags.

    A tag is bound to its owner only, so that it can be searched for. Without the proof, an attacker could
    move tags between records.
    """
    sealed = [seal_tag(tag, key, log_id.owner) for tag in tags]
    return (*sealed, f"{key.id}.{TAGS_MARK}{_proof(sealed, key, log_id)}") if sealed else ()


def open_tags(stored: Sequence[str], keys: DataKeys, log_id: LogId) -> tuple[str, ...]:
    """Return the tags that were sealed for this record. Raise `InvalidSeal`."""
    if not stored:
        return ()
    *sealed, proof = stored
    key = keys.get(key_id_in(proof))
    expected = f"{key.id}.{TAGS_MARK}{_proof(sealed, key, log_id)}"
    if not hmac.compare_digest(proof.encode(), expected.encode()):
        raise InvalidSeal(f"its tags were altered or belong to another record (data key {key.id})")
    return tuple(open_tag(tag, keys, log_id.owner) for tag in sealed)


def _proof(sealed: Sequence[str], key: DataKey, log_id: LogId) -> str:
    data = _encode(("tags", log_id.owner, log_id.conversation_id, sealed))
    return _text(blake2b(data, key=key.fingerprints, digest_size=_FINGERPRINT_BYTES).digest()).rstrip("=")


def seal_tag(tag: str, key: DataKey, owner: str) -> str:
    """Return a tag as it is stored: the same each time for one owner and key."""
    sealed = key.tags.encrypt(b"#" + tag.encode(), [_encode(("tag", owner))])
    return f"{key.id}.{_text(sealed)}"


def open_tag(sealed: str, keys: DataKeys, owner: str) -> str:
    """Return the decrypted tag. Raise `InvalidSeal`."""
    key_id, _, rest = sealed.partition(".")
    key = keys.get(key_id)
    try:
        return key.tags.decrypt(a2b_base64(rest), [_encode(("tag", owner))])[1:].decode()
    except (InvalidTag, ValueError):
        raise _not_here(key) from None


def _sealed(key: DataKey, plain: bytes, bound_to: bytes) -> str:
    nonce = os.urandom(NONCE_BYTES)
    return _text(nonce + key.cipher.encrypt(nonce, plain, bound_to))


def _text(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def _unsealed(key: DataKey, text: str, bound_to: bytes) -> bytes:
    try:
        data = _base64(f'"{text}"')
    except msgspec.MsgspecError:
        raise _not_here(key) from None
    return _opened(key, data, bound_to)


def _opened(key: DataKey, data: bytes, bound_to: bytes) -> bytes:
    try:
        return key.cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to)
    except (InvalidTag, ValueError):
        raise _not_here(key) from None


def _not_here(key: DataKey) -> InvalidSeal:
    return InvalidSeal(f"it was altered or belongs in another place, and is refused (data key {key.id})")
