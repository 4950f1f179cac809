"""The clipboard of the user's desktop, read with its own programs: wl-paste, xclip, pngpaste and pbpaste."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

SECONDS = 5.0
"""How long a program may take: one whose desktop is gone would wait forever."""
PART_BYTES = 65_536
_WAYLAND, _X11 = ("WAYLAND_DISPLAY",), ("DISPLAY",)


class ClipboardProgram(Struct, frozen=True):
    """A program that writes the content of the clipboard to its output."""

    image: Sequence[str]
    text: Sequence[str]
    needs: Sequence[str] = ()
    """The variable that names its desktop."""


PROGRAMS = (
    ClipboardProgram(
        image=("wl-paste", "--no-newline", "--type", "image/png"),
        text=("wl-paste", "--no-newline", "--type", "text"),
        needs=_WAYLAND,
    ),
    ClipboardProgram(
        image=("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
        text=("xclip", "-selection", "clipboard", "-out"),
        needs=_X11,
    ),
    ClipboardProgram(image=("pngpaste", "-"), text=("pbpaste",)),
)


class NoClipboard(Exception):
    """No program can read the clipboard here."""


class TooLarge(Exception):
    """The clipboard holds more than is accepted."""


async def read_clipboard(max_bytes: int, environment: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    """Return the image of the clipboard as PNG, or else its text. Raise NoClipboard or TooLarge."""
    environment = os.environ if environment is None else environment
    found = [program for program in PROGRAMS if all(environment.get(name) for name in program.needs)]
    is_readable = False
    for program in found:
        for command, is_image in ((program.image, True), (program.text, False)):
            path = _find_program(command[0], environment)
            if path is None:
                continue
            is_readable = True
            content = await _read(path, command[1:], max_bytes, environment)
            if content:
                return (content, "") if is_image else (b"", content.decode(errors="replace"))
    if not is_readable:
        raise NoClipboard
    return b"", ""


def _find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of a program. Relative folders are skipped: they may hold files of a project."""
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    return shutil.which(name, path=os.pathsep.join(folders))


async def _read(
    program: str, arguments: Sequence[str], max_bytes: int, environment: Mapping[str, str]
) -> bytes | None:
    """Return what a program writes; None if it fails."""
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        cwd="/",
    )
    assert process.stdout is not None
    content = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            while part := await process.stdout.read(PART_BYTES):
                content += part
                if len(content) > max_bytes:
                    raise TooLarge
            return bytes(content) if await process.wait() == 0 else None
    except TimeoutError:
        return None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
