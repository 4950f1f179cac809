"""Encryption: AES-256-GCM, bound to the name that a value belongs to."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_NONCE_BYTES = 12
_CHECKED = b"treadle vault"


class NotSealedSo(Exception):
    """It was encrypted with another key, for another name or version, or it was changed since."""


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


class Cipher:
    """One key."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._cipher = AESGCM(key)

    def close(self, vault: str, name: str, version: int, value: str) -> bytes:
        return self._encrypt(value.encode(), _about("secret", vault, name, version))

    def open(self, vault: str, name: str, version: int, sealed: bytes) -> str:
        """The value again. Raises NotSealedSo."""
        return self._decrypt(sealed, _about("secret", vault, name, version)).decode()

    def check(self, vault: str) -> bytes:
        """Something that only this key opens: to tell a wrong key from a damaged value."""
        return self._encrypt(_CHECKED, _about("check", vault, "", 0))

    def fits(self, vault: str, check: bytes) -> bool:
        try:
            return self._decrypt(check, _about("check", vault, "", 0)) == _CHECKED
        except NotSealedSo:
            return False

    def _encrypt(self, text: bytes, about: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text, about)

    def _decrypt(self, sealed: bytes, about: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (InvalidTag, ValueError) as error:
            raise NotSealedSo from error


def _about(kind: str, vault: str, name: str, version: int) -> bytes:
    """What the value is bound to. None of the parts can hold the line break that parts them."""
    return "\n".join(("treadle", kind, vault, name, str(version))).encode()
