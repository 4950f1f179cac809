"""Files of JSON lines that several processes append to. A line that a crash cut is left out when they are read."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from treadle.file_versions.private_folders import make_private_folder

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def append_lines(path: Path, items: Iterable[Any], *, durable: bool) -> None:
    """Append items. Durable: they survive a power failure from now on."""
    data = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    if not data:
        return
    make_private_folder(path.parent)
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a crash has cut the last line
            data = b"\n" + data
        while data:
            data = data[os.write(descriptor, data) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def decode_lines(data: bytes, decoder: "msgspec.json.Decoder[Any]") -> Iterator[Any]:
    """Yield the items of complete lines."""
    for line in data.split(b"\n"):
        if line:
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                continue
