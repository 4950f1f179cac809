"""Files in answers: an image in Markdown that names a file of the workspace is sent as that file."""

import re
from urllib.parse import unquote

from treadle.domain.agents import AgentSpec
from treadle.ports.channel import FileRefused, FileSource, OutgoingFile

_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\(\s*<?([^)<>\n]{1,500}?)>?(?:\s+\"[^\"\n]*\")?\s*\)")
_INLINE_CODE = re.compile(r"(`+)[^`\n]+\1")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|#")


async def collect_files(
    text: str, agent: AgentSpec, source: FileSource, max_files: int, max_bytes: int
) -> tuple[str, tuple[OutgoingFile, ...]]:
    """Return an answer with the names of its files instead of their links, and the files. The answer names files
    that cannot be sent."""
    files: list[OutgoingFile] = []
    written: list[str] = []
    position = 0
    code = _find_code(text)
    for found in _IMAGE.finditer(text):
        path = unquote(found[2].strip())
        if _SCHEME.match(path) or any(start <= found.start() < end for start, end in code):
            continue
        written.append(text[position : found.start()])
        written.append(await _add_file(path, found[1].strip(), agent, source, files, (max_files, max_bytes)))
        position = found.end()
    return "".join((*written, text[position:])), tuple(files)


async def _add_file(
    path: str, title: str, agent: AgentSpec, source: FileSource, files: list[OutgoingFile], limits: tuple[int, int]
) -> str:
    """Add a file to those that are sent. Return what the answer says instead of the link."""
    max_files, max_bytes = limits
    shown = (title or path).replace("`", "'")
    if source.judge(agent, path) != "auto":
        return f"{shown} (not sent: the agent may not read it without an approval)"
    if len(files) >= max_files:
        return f"{shown} (not sent: an answer may have {max_files} files)"
    try:
        files.append(await source.read(agent, path, max_bytes))
    except FileRefused as error:
        return f"{shown} (not sent: {error})"
    return shown


def _find_code(text: str) -> list[tuple[int, int]]:
    """Return where the text is code: fenced blocks, and code within lines."""
    found: list[tuple[int, int]] = []
    position, fence = 0, ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence or mark is not None:
            found.append((position, position + len(line)))
        if mark is not None:
            fence = mark[1] if not fence else "" if mark[1].startswith(fence) else fence
        elif not fence:
            found += [(position + code.start(), position + code.end()) for code in _INLINE_CODE.finditer(line)]
        position += len(line) + 1
    return found
