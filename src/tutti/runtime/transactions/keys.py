"""Who said it, and who may read it: Ed25519 signatures, X25519 wrapping, XChaCha20-Poly1305 for payloads.

The journal's key speaks for every manager that shares the journal; it lies in the data folder, or wherever the
configuration says, and is never sent. Members make a key for each census, and one for each enrolment in a group.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import Final

import nacl.exceptions
import nacl.public
import nacl.secret
import nacl.signing
import nacl.utils

from tutti.errors import DeclarationError, InvalidEvent, InvalidMessage
from tutti.limits import KEYS_KEPT_COUNT

_SEED_BYTES: Final = 32


class SigningKey:
    """A secret that signs; `public` is its name on the wire."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        self._key = nacl.signing.SigningKey(seed)
        self.public = _text(bytes(self._key.verify_key))

    @classmethod
    def fresh(cls) -> SigningKey:
        return cls(nacl.utils.random(_SEED_BYTES))

    @property
    def seed(self) -> bytes:
        """The secret itself, for whoever keeps it in a log of its own."""
        return bytes(self._key)

    def sign(self, body: bytes) -> bytes:
        return self._key.sign(body).signature


@lru_cache(KEYS_KEPT_COUNT)
def _verify_key(public: str) -> nacl.signing.VerifyKey:
    """The journal's, and those of a group's members, come again and again."""
    return nacl.signing.VerifyKey(_bytes(public))


def is_signed(body: bytes, signature: bytes, public: str) -> bool:
    """Whether the holder of this key signed exactly these bytes. Whatever is wrong with any of them, the answer is
    no."""
    try:
        _verify_key(public).verify(body, signature)
    except (nacl.exceptions.CryptoError, ValueError, TypeError):
        return False
    return True


class WrapKey:
    """A secret for which others wrap payload keys."""

    __slots__ = ("_box", "_key", "public")

    def __init__(self, seed: bytes) -> None:
        self._key = nacl.public.PrivateKey(seed)
        self._box = nacl.public.SealedBox(self._key)
        self.public = _text(bytes(self._key.public_key))

    @classmethod
    def fresh(cls) -> WrapKey:
        return cls(nacl.utils.random(_SEED_BYTES))

    @property
    def seed(self) -> bytes:
        return bytes(self._key)

    def unwrap(self, wrapped: bytes) -> PayloadKey:
        try:
            return PayloadKey(self._box.decrypt(wrapped))
        except (nacl.exceptions.CryptoError, ValueError, TypeError) as error:
            raise InvalidEvent(
                "the key of a private transaction was not wrapped for this member",
                hint="was the data folder of this subscriber replaced? enrol it again",
            ) from error


class PayloadKey:
    """The key of one private transaction. `context` binds a payload to its place: it cannot be moved to another."""

    __slots__ = ("_box", "secret")

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._box = nacl.secret.Aead(secret)

    @classmethod
    def fresh(cls) -> PayloadKey:
        return cls(nacl.utils.random(nacl.secret.Aead.KEY_SIZE))

    def wrapped_for(self, public: str) -> bytes:
        """`InvalidMessage` if that is no key: whoever joins may say what it likes."""
        try:
            return bytes(nacl.public.SealedBox(nacl.public.PublicKey(_bytes(public))).encrypt(self.secret))
        except (nacl.exceptions.CryptoError, ValueError, TypeError) as error:
            raise InvalidMessage(f"{public[:80]!r} is no key to wrap another one with: {error}") from error

    def seal(self, data: bytes, context: str) -> bytes:
        return bytes(self._box.encrypt(data, context.encode()))

    def open(self, sealed: bytes, context: str) -> bytes:
        try:
            return bytes(self._box.decrypt(sealed, context.encode()))
        except (nacl.exceptions.CryptoError, ValueError, TypeError) as error:
            raise InvalidEvent(
                f"a private payload ({context}) cannot be opened", hint="it was changed, or sealed with another key"
            ) from error


def keep_journal_key(path: Path) -> SigningKey:
    """The journal's key in this file, readable by its owner alone; made where there is none. Of several processes that
    come first at once, one makes it."""
    try:
        return read_journal_key(path)
    except FileNotFoundError:
        pass
    fresh = path.with_suffix(f".{secrets.token_hex(8)}.new")  # threads of one process come at once too
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(_text(SigningKey.fresh().seed) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, path)  # fails where somebody else was first, unlike a rename
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return read_journal_key(path)


def read_journal_key(path: Path) -> SigningKey:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise DeclarationError(
            f"the journal's key {path} can be read by others", hint=f"chmod 600 {path}, and make a new one if need be"
        )
    try:
        seed = _bytes(path.read_text().strip())
        return SigningKey(seed)
    except (ValueError, TypeError, nacl.exceptions.CryptoError) as error:
        raise DeclarationError(
            f"{path} holds no journal key: {error}", hint="restore it; without it nobody can finish transactions"
        ) from error


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"this is no key: {error}") from error
