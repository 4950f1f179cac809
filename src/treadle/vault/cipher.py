"""Encryption with AES-256-GCM, bound to the name that a value belongs to."""

import os

KEY_BYTES = 32
_NONCE_BYTES = 12
_CHECKED = b"treadle vault"


class DecryptionFailed(Exception):
    """The value was encrypted with another key, for another name or version, or was changed since."""


def generate_key() -> bytes:
    return os.urandom(KEY_BYTES)


class Cipher:
    """Encrypts and decrypts with one key."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow, and most commands decrypt nothing

        self.key = key
        self._cipher = AESGCM(key)

    def close(self, vault: str, name: str, version: int, value: str) -> bytes:
        return self._encrypt(value.encode(), _make_binding("secret", vault, name, version))

    def open(self, vault: str, name: str, version: int, sealed: bytes) -> str:
        """Return the decrypted value. Raise DecryptionFailed."""
        return self._decrypt(sealed, _make_binding("secret", vault, name, version)).decode()

    def check(self, vault: str) -> bytes:
        """Return a token that only this key decrypts, to tell a wrong key from a damaged value."""
        return self._encrypt(_CHECKED, _make_binding("check", vault, "", 0))

    def is_key_of(self, vault: str, check: bytes) -> bool:
        try:
            return self._decrypt(check, _make_binding("check", vault, "", 0)) == _CHECKED
        except DecryptionFailed:
            return False

    def _encrypt(self, text: bytes, about: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text, about)

    def _decrypt(self, sealed: bytes, about: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (InvalidTag, ValueError) as error:
            raise DecryptionFailed from error


def _make_binding(kind: str, vault: str, name: str, version: int) -> bytes:
    """Return what the value is bound to. None of the parts can contain the line break that separates them."""
    return "\n".join(("treadle", kind, vault, name, str(version))).encode()
