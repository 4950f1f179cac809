"""How often a client may fail to sign in."""

import struct
import time
from collections import deque
from hashlib import sha256
from pathlib import Path

from treadle.operations.refusal import Refusal

MAX_FAILURES = 10
FAILURE_SECONDS = 60.0
"""Period for which failed attempts of one client are counted."""
MAX_PROXY_FAILURES = 100
"""The same for all clients of a proxy on this machine. It names them in X-Forwarded-For."""
MAX_PEERS = 10_000
_FAILURE = struct.Struct("<d16s")


class SignInLimit:
    """Counts failed attempts by peer, in this process."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[float]] = {}

    def check(self, peer: str, forwarded: str = "") -> None:
        """Raise Refusal if the client has failed too often. `forwarded` is the client that a proxy names."""
        client, *proxy = _identify(peer, forwarded)
        if self._count(client) >= MAX_FAILURES or any(self._count(each) >= MAX_PROXY_FAILURES for each in proxy):
            raise Refusal(
                429, "TooManySignIns", "Too many failed attempts to sign in. Wait a minute, then try again."
            )

    def count_failure(self, peer: str, forwarded: str = "") -> None:
        if len(self._failures) >= MAX_PEERS:
            self._failures.clear()
        for key in _identify(peer, forwarded):
            self._failures.setdefault(key, deque()).append(time.monotonic())

    def _count(self, key: str) -> int:
        failures, now = self._failures.get(key), time.monotonic()
        while failures and now - failures[0] > FAILURE_SECONDS:
            failures.popleft()
        return len(failures) if failures else 0


class SharedSignInLimit(SignInLimit):
    """Counts failed attempts by peer in all processes behind a port. They append them to one file, with their
    times."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def count_failure(self, peer: str, forwarded: str = "") -> None:
        entries = b"".join(_FAILURE.pack(time.monotonic(), _digest(key)) for key in _identify(peer, forwarded))
        is_full = self._path.exists() and self._path.stat().st_size >= MAX_PEERS * _FAILURE.size
        with self._path.open("wb" if is_full else "ab") as file:
            file.write(entries)

    def _count(self, key: str) -> int:
        digest, since = _digest(key), time.monotonic() - FAILURE_SECONDS
        try:
            written = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        whole = written[: len(written) // _FAILURE.size * _FAILURE.size]
        return sum(at > since and whose == digest for at, whose in _FAILURE.iter_unpack(whole))


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()[:16]


def _identify(peer: str, forwarded: str) -> tuple[str, ...]:
    """Return who tries to sign in, and the proxy on this machine that says so, if there is one. The last entry of
    the header is the one that the proxy itself has added. Proxies elsewhere are not believed."""
    name = forwarded.rpartition(",")[2].strip()[:64]
    is_local_proxy = bool(name) and (peer == "::1" or peer.startswith("127."))
    return (f"{peer} for {name}", f"{peer} for all") if is_local_proxy else (peer,)
