"""The cross-signing identity of a Matrix account. Clients such as Element exchange encrypted messages only with
devices that the identity of their account has signed."""

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, cast

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec import Struct
from nio import AsyncClient  # pyright: ignore[reportMissingTypeStubs] -- it has none

from treadle.ports.channel import ChannelError

SELF_SIGNING = "m.cross_signing.self_signing"
UNSIGNED = (
    "The device is not verified, so clients such as Element exchange no encrypted messages with it: the account "
    "has an identity whose keys are not here. Set `recovery_key`. If you have none, reset the identity of the "
    "account in a client, which shows a new one."
)
NOT_SIGNED = (
    "The device is not verified, so clients such as Element exchange no encrypted messages with it: the homeserver "
    "does not accept an identity for the account ({reason})."
)
NEEDS_PASSWORD = (
    "The device is not verified, so clients such as Element exchange no encrypted messages with it: the homeserver "
    "creates an identity for the account only with its password. Set `password` instead of `access_token`."
)
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_RECOVERY_PREFIX = b"\x8b\x01"


class CrossSigningKeys(Struct, frozen=True):
    """The private keys of an identity. Each is a seed in Base64."""

    master: str
    self_signing: str
    user_signing: str


class Refused(Exception):
    """The homeserver rejects a request."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("error", status)))
        self.status = status
        self.body = body


async def check_device(client: AsyncClient) -> None:
    """Raise ChannelError if the device of a client belongs to another program, whose keys must not be replaced."""
    try:
        await _query(client)
    except Refused as error:
        raise ChannelError(f"the homeserver does not show the encryption keys of the device: {error}") from None


async def sign_device(client: AsyncClient, file: Path, password: str, recovery_key: str) -> str:
    """Sign the device of a client with the identity of its account. An account without an identity gets one, whose
    keys are stored in a file. Return why that is not possible, or an empty text."""
    user, device = str(client.user_id), str(client.device_id)
    try:
        keys, published = await _query(client)
        if published is None:
            identity = _create(file)
            await _publish(client, identity, user, password)
            published = _derive_public_key(identity.self_signing)
        seed = await _find_seed(client, file, published, recovery_key)
        if seed is None:
            return UNSIGNED
        if keys and not _is_signed(keys, user, published):
            signed = _sign(keys, seed, user)
            answer = await _call(client, "POST", "/v3/keys/signatures/upload", {user: {device: signed}})
            if answer.get("failures"):
                return NOT_SIGNED.format(reason=answer["failures"])
    except Refused as error:
        return NEEDS_PASSWORD if error.status == 401 else NOT_SIGNED.format(reason=error)
    return ""


async def _query(client: AsyncClient) -> tuple[dict[str, Any], str | None]:
    """Return the published keys of this device, and the self-signing key of its account. Keys that are not those of
    this client belong to another program, or the homeserver lies: they must be neither replaced nor signed."""
    assert client.olm is not None
    user, device = str(client.user_id), str(client.device_id)
    found = await _call(client, "POST", "/v3/keys/query", {"device_keys": {user: []}})
    own = client.olm.account.identity_keys
    wanted = {f"{kind}:{device}": own[kind] for kind in ("curve25519", "ed25519")}
    try:
        keys = cast("dict[str, Any]", found["device_keys"].get(user, {}).get(device) or {})
        names = (keys.get("user_id"), keys.get("device_id"), keys.get("keys"))
        signing = found.get("self_signing_keys", {}).get(user)
        published = None if signing is None else str(next(iter(signing["keys"].values())))
    except (AttributeError, KeyError, TypeError, StopIteration):
        raise ChannelError("the answer of the homeserver about encryption keys cannot be read") from None
    if keys and names != (user, device, wanted):
        raise ChannelError(
            "the device of this login has other encryption keys. Set `password` instead of `access_token`, or an "
            "access token that no other program uses; with a password, delete the folder of the channel"
        )
    return keys, published


# ── The identity ──


def _create(file: Path) -> CrossSigningKeys:
    """Return the identity of a file, or a new one that is stored there before anything is published."""
    if (known := _read(file)) is not None:
        return known
    identity = CrossSigningKeys(*(_encode(Ed25519PrivateKey.generate().private_bytes_raw()) for _ in range(3)))
    fresh = file.with_name(f"{file.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.encode(identity))
    fresh.replace(file)
    return identity


def _read(file: Path) -> CrossSigningKeys | None:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=CrossSigningKeys)
        for seed in (found.master, found.self_signing, found.user_signing):
            _derive_public_key(seed)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ChannelError(
            f"{file} is damaged: {error}. Restore it from a copy, or delete it and set `recovery_key`"
        ) from None
    return found


async def _publish(client: AsyncClient, identity: CrossSigningKeys, user: str, password: str) -> None:
    body: dict[str, Any] = {
        "master_key": _describe(identity.master, "master", user),
        "self_signing_key": _sign(_describe(identity.self_signing, "self_signing", user), identity.master, user),
        "user_signing_key": _sign(_describe(identity.user_signing, "user_signing", user), identity.master, user),
    }
    try:
        await _call(client, "POST", "/v3/keys/device_signing/upload", body)
    except Refused as error:
        if error.status != 401 or "session" not in error.body or not password:
            raise
        who = {"type": "m.id.user", "user": user}
        proof = {"type": "m.login.password", "identifier": who, "password": password}
        body["auth"] = {**proof, "session": error.body["session"]}
        await _call(client, "POST", "/v3/keys/device_signing/upload", body)


async def _find_seed(client: AsyncClient, file: Path, published: str, recovery_key: str) -> str | None:
    """Return the private key of a published key: from the file, or from the secret storage of the account."""
    try:
        own = _read(file)
    except ChannelError:
        if not recovery_key:
            raise
        own = None  # the recovery key replaces it
    if own is not None and _derive_public_key(own.self_signing) == published:
        return own.self_signing
    if not recovery_key:
        return None
    stored = await _read_secret(client, recovery_key)
    if _derive_public_key(stored) != published:
        raise ChannelError("the secret storage of the account has an old identity. Reset the identity in a client")
    return stored


def _describe(seed: str, usage: str, user: str) -> dict[str, Any]:
    public = _derive_public_key(seed)
    return {"user_id": user, "usage": [usage], "keys": {f"ed25519:{public}": public}}


# ── Signatures ──


def _sign(signed: dict[str, Any], seed: str, user: str) -> dict[str, Any]:
    """Return an object with a signature."""
    content = {name: value for name, value in signed.items() if name not in ("signatures", "unsigned")}
    signature = Ed25519PrivateKey.from_private_bytes(_decode(seed)).sign(_encode_canonical(content))
    return {**content, "signatures": {user: {f"ed25519:{_derive_public_key(seed)}": _encode(signature)}}}


def _is_signed(signed: dict[str, Any], user: str, public: str) -> bool:
    signature = signed.get("signatures", {}).get(user, {}).get(f"ed25519:{public}")
    content = {name: value for name, value in signed.items() if name not in ("signatures", "unsigned")}
    try:
        Ed25519PublicKey.from_public_bytes(_decode(public)).verify(
            _decode(signature or ""), _encode_canonical(content)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def _encode_canonical(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _derive_public_key(seed: str) -> str:
    key = Ed25519PrivateKey.from_private_bytes(_decode(seed)).public_key()
    return _encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def _encode(value: bytes) -> str:
    return b64encode(value).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4))


# ── Secret storage ──


async def _read_secret(client: AsyncClient, recovery_key: str) -> str:
    """Return the private self-signing key from the secret storage of the account."""
    key = decode_recovery_key(recovery_key)
    user = str(client.user_id)
    where = f"/v3/user/{user}/account_data"
    try:
        key_id = (await _call(client, "GET", f"{where}/m.secret_storage.default_key"))["key"]
        secret = (await _call(client, "GET", f"{where}/{SELF_SIGNING}"))["encrypted"][key_id]
    except (Refused, KeyError):
        raise ChannelError("the account has no secret storage for `recovery_key`. Set it up in a client") from None
    derived = HKDF(SHA256(), 64, bytes(32), SELF_SIGNING.encode()).derive(key)
    try:
        ciphertext, mac, iv = (_decode(secret[name]) for name in ("ciphertext", "mac", "iv"))
    except (KeyError, TypeError, ValueError):
        raise ChannelError("the secret storage of the account is damaged. Set it up again in a client") from None
    if not hmac.compare_digest(hmac.digest(derived[32:], ciphertext, hashlib.sha256), mac):
        raise ChannelError("`recovery_key` does not belong to the account")
    decryptor = Cipher(AES(derived[:32]), CTR(iv)).decryptor()
    return (decryptor.update(ciphertext) + decryptor.finalize()).decode().rstrip("=")


def decode_recovery_key(text: str) -> bytes:
    """Return the 32 bytes of a recovery key, as clients show it: groups of letters and digits."""
    number = 0
    for letter in "".join(text.split()):
        if letter not in _BASE58:
            raise ChannelError(f"`recovery_key` has the character `{letter}`, which recovery keys do not have")
        number = number * 58 + _BASE58.index(letter)
    found = number.to_bytes(max(35, (number.bit_length() + 7) // 8), "big")
    parity = 0
    for byte in found:
        parity ^= byte
    if len(found) != 35 or parity or not found.startswith(_RECOVERY_PREFIX):
        raise ChannelError("`recovery_key` is not complete. It has 12 groups of 4 letters and digits")
    return found[2:34]


# ── Requests ──


async def _call(client: AsyncClient, method: str, path: str, body: Any = None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {client.access_token}"}
    data = None if body is None else json.dumps(body)
    response = await client.send(method, f"/_matrix/client{path}", data, headers)
    try:
        answer = await response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Refused(response.status, {"error": f"status {response.status} without an object of JSON"})
    if response.status >= 400:
        raise Refused(response.status, cast("dict[str, Any]", answer))
    return cast("dict[str, Any]", answer)
