"""The key that says on a bus with an auth callout what a client may do, and what it signs.

Claims as nats-server reads them from an auth callout service (claims of version 2, RFC 7519 with the algorithm
``ed25519-nkey``): an authorization response for the server that asked, with the user's claims inside.
"""

import base64
import binascii
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import nkeys

from flexinfer.contracts.permissions import Permissions

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED = {"subs": -1, "data": -1, "payload": -1}
_VERSION = 2


class Signer:
    """An account's NKey."""

    def __init__(self, seed: bytes) -> None:
        """``seed``: an NKey seed. Raises ValueError if it is none of an account."""
        try:
            kind, _ = nkeys.decode_seed(seed)
            self._pair = nkeys.from_seed(seed)
        except (nkeys.NkeysError, ValueError, IndexError) as err:
            raise ValueError("not an NKey seed") from err
        if kind != nkeys.PREFIX_BYTE_ACCOUNT:
            raise ValueError("the NKey seed is not one of an account (SA…)")

    @classmethod
    def read(cls, file: Path) -> "Signer":
        """From a file with an account's NKey seed (``SA…``), or with 32 random bytes in base64.

        Raises OSError, ValueError.
        """
        text = file.read_text().strip()
        try:
            if text.startswith("SA") and len(text) == 58:
                return cls(text.encode())
            return cls(nkeys.encode_seed(base64.b64decode(text, validate=True), nkeys.PREFIX_BYTE_ACCOUNT))
        except (nkeys.NkeysError, binascii.Error, ValueError) as err:
            raise ValueError(f"{file} holds neither an account's NKey seed nor 32 bytes in base64") from err

    @property
    def issuer(self) -> str:
        """The public key, as ``issuer`` of a server's ``auth_callout`` takes it."""
        return bytes(self._pair.public_key).decode()

    def user(self, asked: "Request", name: str, rights: Permissions, times: tuple[float, float], account: str) -> str:
        """Claims of one client, bound to the key its server made for this login. ``times``: now and end."""
        allowed = {"pub": {"allow": list(rights.publish)}, "sub": {"allow": list(rights.subscribe)}}
        user = {**allowed, **_UNLIMITED, "type": "user", "version": _VERSION}
        claims = {"sub": asked.user, "aud": account, "name": name, "exp": int(times[1]), "nats": user}
        return self._sign(claims, times[0])

    def answer(self, asked: "Request", now: float, *, user: str = "", error: str = "") -> bytes:
        """The response: the user's claims, or why there are none."""
        content = {"jwt": user} if user else {"error": error}
        response = {**content, "type": "authorization_response", "version": _VERSION}
        return self._sign({"sub": asked.user, "aud": asked.server, "nats": response}, now).encode()

    def _sign(self, claims: dict[str, Any], now: float) -> str:
        claims = {"iss": self.issuer, "iat": int(now), **claims}
        claims["jti"] = base64.b32encode(hashlib.sha256(msgspec.json.encode(claims)).digest()).decode().rstrip("=")
        text = f"{_part(msgspec.json.encode(_HEADER))}.{_part(msgspec.json.encode(claims))}"
        return f"{text}.{_part(self._pair.sign(text.encode()))}"


def _part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a server asks. ``user`` is the key it made for this login."""

    server: str
    user: str
    client: str
    host: str
    password: str


class _Server(msgspec.Struct):
    id: str


class _Client(msgspec.Struct):
    name: str = ""
    host: str = ""


class _Login(msgspec.Struct):
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""


class _Asked(msgspec.Struct):
    server_id: _Server
    user_nkey: str
    client_info: _Client = msgspec.field(default_factory=_Client)
    connect_opts: _Login = msgspec.field(default_factory=_Login)


class _Claims(msgspec.Struct):
    nats: _Asked


_claims = msgspec.json.Decoder(_Claims)


def read_request(raw: bytes) -> Request:
    """A server's question. Its signature says nothing: the subject it comes on is the server's alone.

    Raises ValueError.
    """
    parts = raw.split(b".")
    if len(parts) != 3:
        raise ValueError("not a JWT")
    try:
        claims = _claims.decode(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (msgspec.DecodeError, binascii.Error, ValueError) as err:
        raise ValueError(f"not an authorization request: {err}") from None
    asked = claims.nats
    return Request(
        server=asked.server_id.id,
        user=asked.user_nkey,
        client=asked.client_info.name[:128],
        host=asked.client_info.host[:128],
        password=asked.connect_opts.password or asked.connect_opts.auth_token,
    )
