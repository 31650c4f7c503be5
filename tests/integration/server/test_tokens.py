"""JSON Web Tokens: whose are taken, and whose are not."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from aforesaid.errors import InvalidSetting, NotAuthenticated
from aforesaid.server.auth.authenticator import Authenticator
from aforesaid.server.auth.keys import ApiKeys, Caller
from aforesaid.server.auth.tokens import TokenRules, Tokens
from aforesaid.settings import ServerConfig
from aforesaid.stores.memory import InMemoryBackend
from aforesaid.testing import FixedClock
from tests.integration.server.running import serving

ISSUER, AUDIENCE = "https://id.example.org", "aforesaid"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEYS: dict[str, Any] = {
    "RS256": RSA,
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}


def jwk(alg: str, key: Any, **more: str) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name(alg)
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": alg, "alg": alg, **more}


def signed(alg: str = "RS256", *, key: Any = None, kid: str | None = None, **claims: Any) -> str:
    known = {"iss": ISSUER, "aud": AUDIENCE, "sub": "erin", "exp": time.time() + 3600}
    given = {name: value for name, value in (known | claims).items() if value is not None}
    return jwt.encode(given, key or KEYS[alg], algorithm=alg, headers={"kid": kid or alg})


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [jwk(alg, key) for alg, key in KEYS.items()]}))
    return file


@pytest.fixture
def tokens(jwks: Path) -> Tokens:
    return Tokens(TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks)))


@pytest.mark.parametrize("alg", KEYS)
async def test_a_token_names_its_owner(tokens: Tokens, alg: str) -> None:
    caller, until = await tokens.caller(signed(alg))
    assert caller == Caller(name="token:erin", owners=frozenset({"erin"}), scope="write", owner="erin")
    assert until.timestamp() > time.time()


async def test_a_cached_token_expires_at_its_moment(tokens: Tokens) -> None:
    clock = FixedClock(datetime.now(UTC))
    keys = ApiKeys(InMemoryBackend())
    authenticator = Authenticator(keys, tokens, clock=clock, monotonic=lambda: 0.0)
    headers = {b"authorization": f"Bearer {signed()}".encode()}
    assert (await authenticator.authenticate(headers)).owner == "erin"
    clock.advance(timedelta(seconds=50))
    assert (await authenticator.authenticate(headers)).owner == "erin"
    clock.advance(timedelta(hours=2))
    with pytest.raises(NotAuthenticated):
        await authenticator.authenticate(headers)


@pytest.mark.parametrize(
    ("scope", "reach"),
    [
        ("aforesaid:read", "read"),
        ("openid aforesaid:read aforesaid:admin", "admin"),
        (["aforesaid:read"], "read"),
        ("openid", "write"),
        (7, "write"),
    ],
)
async def test_a_token_may_name_its_scope(tokens: Tokens, scope: Any, reach: str) -> None:
    caller, _ = await tokens.caller(signed(scope=scope))
    assert caller.scope == reach


def _public_pem() -> bytes:
    return RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _confused() -> str:
    """Signed with the public key as if it were a shared secret."""
    import base64
    import hmac

    def packed(document: dict[str, Any]) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=")

    head = packed({"alg": "HS256", "kid": "RS256", "typ": "JWT"})
    body = packed({"iss": ISSUER, "aud": AUDIENCE, "sub": "erin", "exp": time.time() + 3600})
    signature = hmac.digest(_public_pem(), head + b"." + body, "sha256")
    return (head + b"." + body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


BAD: dict[str, Callable[[], str]] = {
    "expired": lambda: signed(exp=time.time() - 60),
    "not yet": lambda: signed(nbf=time.time() + 600),
    "another issuer": lambda: signed(iss="https://evil.example"),
    "another audience": lambda: signed(aud="somebody else"),
    "no end": lambda: signed(exp=None),
    "no owner": lambda: signed(sub=None),
    "an empty owner": lambda: signed(sub=""),
    "another key": lambda: signed(key=rsa.generate_private_key(public_exponent=65537, key_size=2048)),
    "an unknown key": lambda: signed(kid="nobody"),
    "a key of another kind": lambda: signed("ES256", kid="RS256"),
    "no signature": lambda: jwt.encode({"sub": "erin"}, "", algorithm="none"),
    "a public key as a secret": _confused,
    "nonsense": lambda: "a.b.c",
    "no ascii": lambda: "ü.ü.ü",
    "an end beyond all time": lambda: signed(exp=10**30),
}


@pytest.mark.parametrize("made", BAD.values(), ids=BAD)
async def test_a_bad_token_is_refused_in_the_same_words(tokens: Tokens, made: Callable[[], str]) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        await tokens.caller(made())
    assert str(refused.value) == "A valid key is needed."


async def test_clocks_may_differ_a_little(tokens: Tokens) -> None:
    await tokens.caller(signed(exp=time.time() - 10))


async def test_a_new_key_is_found_but_the_issuer_is_not_asked_for_every_unknown_one(
    jwks: Path,
) -> None:
    now = 100.0
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks), refetch_after=30)
    tokens = Tokens(rules, monotonic=lambda: now)
    await tokens.caller(signed())
    fresh = ed25519.Ed25519PrivateKey.generate()
    jwks.write_text(json.dumps({"keys": [jwk("EdDSA", fresh) | {"kid": "fresh"}]}))
    with pytest.raises(NotAuthenticated):
        await tokens.caller(signed("EdDSA", key=fresh, kid="fresh"))
    now += 30
    await tokens.caller(signed("EdDSA", key=fresh, kid="fresh"))
    with pytest.raises(NotAuthenticated):
        await tokens.caller(signed())  # withdrawn with the rotation


async def test_an_unreachable_issuer_locks_no_client_out(jwks: Path) -> None:
    now = 100.0
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks))
    tokens = Tokens(rules, monotonic=lambda: now)
    await tokens.caller(signed())
    jwks.unlink()
    now += rules.keep_for
    await tokens.caller(signed())


NONSENSE: dict[str, str] = {
    "an empty object": "{}",
    "an error": '{"error": "maintenance"}',
    "null for keys": '{"keys": null}',
    "a number for keys": '{"keys": 7}',
    "a list": "[]",
    "no JSON": "<html>",
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
async def test_an_issuer_with_invalid_responses_locks_no_client_out(jwks: Path, nonsense: str) -> None:
    now = 100.0
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks))
    tokens = Tokens(rules, monotonic=lambda: now)
    await tokens.caller(signed())
    jwks.write_text(nonsense)
    for _ in range(2):
        now += rules.keep_for
        await tokens.caller(signed())


async def test_who_does_not_speak_http_has_no_keys() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"garbage\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        place = f"http://127.0.0.1:{port}/jwks"
        tokens = Tokens(TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=place))
        with pytest.raises(NotAuthenticated):
            await tokens.caller(signed())


async def test_an_issuer_withdraws_its_keys_with_a_list_that_lacks_them(jwks: Path) -> None:
    now = 100.0
    rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks))
    tokens = Tokens(rules, monotonic=lambda: now)
    await tokens.caller(signed())
    jwks.write_text('{"keys": []}')
    now += rules.keep_for
    with pytest.raises(NotAuthenticated):
        await tokens.caller(signed())


async def test_a_key_that_cannot_be_used_spoils_no_other(jwks: Path) -> None:
    broken = [{"kty": "RSA", "kid": [], "n": 5}, {"kty": "RSA", "alg": "none"}, {"kty": "OKP", "alg": []}]
    jwks.write_text(json.dumps({"keys": [*broken, jwk("RS256", RSA)]}))
    tokens = Tokens(TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks)))
    assert (await tokens.caller(signed()))[0].owner == "erin"


async def test_a_shared_secret_in_the_jwks_is_no_key(jwks: Path) -> None:
    secret = {"kty": "oct", "kid": "shared", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}
    jwks.write_text(json.dumps({"keys": [secret, "nonsense", {"kty": "RSA", "kid": "broken"}]}))
    tokens = Tokens(TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks=str(jwks)))
    forged = jwt.encode(
        {"sub": "erin"}, "secretsecretsecretsecretsecret!!", algorithm="HS256", headers={"kid": "shared"}
    )
    with pytest.raises(NotAuthenticated):
        await tokens.caller(forged)


@pytest.mark.parametrize("missing", ["issuer", "audience", "jwks"])
def test_rules_that_lack_something_are_refused(missing: str) -> None:
    given: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": "jwks.json", missing: ""}
    with pytest.raises(InvalidSetting, match=f"jwt_{missing}"):
        TokenRules(**given)


def test_keys_are_not_fetched_in_the_clear() -> None:
    with pytest.raises(InvalidSetting, match="https"):
        TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks="http://id.example.org/jwks.json")


async def test_tokens_and_keys_open_the_same_door(jwks: Path) -> None:
    settings = ServerConfig(jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_jwks=str(jwks), jwt_scope="read")
    async with serving(settings=settings) as server:
        assert (await server.client.get("/v1/conversations")).status_code == 401
        token = {"Authorization": f"Bearer {signed()}"}
        assert (await server.client.get("/v1/conversations", headers=token)).status_code == 200
        refused = await server.client.post("/v1/conversations", json={"session_id": "k"}, headers=token)
        assert refused.status_code == 403
        foreign = await server.client.get("/v1/conversations", headers=token | {"Aforesaid-Owner": "bob"})
        assert foreign.status_code == 403
        key = await server.key("erin")
        assert (await server.client.get("/v1/conversations", headers=key)).status_code == 200
