"""Sessions with tools, made up the same way each time: what people asked, what the model said and
called, and what its tools returned. Half of them are there to fit the weights of `core.tokens`, the
other half to check them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.tokens.made import MADE, WORDS
from treadle.domain.messages import Part, Text, ToolUse
from treadle.domain.tools import ToolSpec

FIT, CHECK = 0, 1
_FILES = ("fit.txt", "check.txt")
_LANGUAGES = ("english", "european", "cyrillic", "chinese", "japanese", "korean", "arabic", "emoji")
MOST_CHARACTERS = 14_000
"""Of a session: the embedded model takes 8192 tokens. Dense kinds get a share of it."""
_SHARES = {
    "cyrillic": 0.4, "chinese": 0.2, "japanese": 0.15, "korean": 0.12, "arabic": 0.25, "emoji": 0.35, "base64": 0.4,
    "hex": 0.35, "logs": 0.5, "csv": 0.6, "paths": 0.6, "failures": 0.7, "json": 0.7, "mixed": 0.6,
    "mixed again": 0.5, "sequences": 0.5,
}  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """One request: what is new in it from a person, what the model replies, and what its calls
    return."""

    asked: str
    reply: tuple[Part, ...]
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class Session:
    kind: str
    half: int
    persona: str
    tools: tuple[ToolSpec, ...]
    turns: tuple[Turn, ...]


def _tool(name: str, description: str, *required: str, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name, description, schema | {"additionalProperties": False}, effect="read")


def _is(type_: str, description: str = "", **more: Any) -> dict[str, Any]:
    return {"type": type_} | ({"description": description} if description else {}) | more


TOOLS = (
    _tool(
        "read_file", "Read a text file. Long files are cut in the middle.", "path",
        path=_is("string", "Relative to the workspace."), first_line=_is("integer", default=1),
        lines=_is("integer", "How many; all if it is not given."),
    ),
    _tool(
        "write_file", "Write a file; what was there is replaced.", "path", "content",
        path=_is("string"), content=_is("string", "The whole text."),
    ),
    _tool(
        "search", "Search the files of the workspace for a regular expression, and show the lines that match.",
        "pattern", pattern=_is("string", "As in grep -E."), folder=_is("string", default="."),
        ignore_case=_is("boolean", default=False), most=_is("integer", "The most lines to show.", default=200),
    ),
    _tool(
        "run_command", "Run a command in a shell and return what it prints, and its exit code if that is not 0.",
        "command", command=_is("string"), timeout=_is("number", "Seconds.", default=60),
        environment=_is("object", additionalProperties={"type": "string"}),
    ),
    _tool(
        "fetch_page", "Fetch a page from the web as text.", "url", url=_is("string", "With http:// or https://."),
        format={"enum": ["text", "markdown", "html"], "default": "text"},
    ),
    _tool(
        "query_database", "Run a query against the reporting database. Only SELECT is allowed.", "sql",
        sql=_is("string"), parameters=_is("array", items={"type": "string"}),
    ),
    _tool("list_folder", "List a folder.", path=_is("string", default=".")),
    _tool(
        "send_message", "Send a message to a person or a channel. They see it at once, so check it before.",
        "to", "text", to=_is("string", "A name, or # and a channel."), text=_is("string"),
        attachments=_is("array", items={"type": "object", "properties": {"path": _is("string")}}),
    ),
)  # fmt: skip
_PERSONAS = (
    "You are a careful assistant. Use the tools that you have, and say when you are not sure.",
    "You help a small team to run its services. Be brief. Never change anything without having looked at it first, "
    "and report what you did in a sentence or two.\n\nThe workspace belongs to the team; treat what is in it as "
    "confidential.",
    "",
)


@cache
def texts(half: int) -> dict[str, str]:
    """What people wrote, by its kind."""
    whole = (Path(__file__).parent / "texts" / _FILES[half]).read_text("utf-8")
    _, *sections = re.split(r"^=== (\w+)\n", whole, flags=re.MULTILINE)
    return dict(zip(sections[::2], sections[1::2], strict=True))


KINDS = (*texts(FIT), *MADE, "mixed", "mixed again")


def sessions() -> list[Session]:
    """Return all sessions: two of each kind, one in either half."""
    return [session(kind, half) for half in (FIT, CHECK) for kind in KINDS]


def session(kind: str, half: int) -> Session:
    return _Maker(kind, half).session()


class _Maker:
    """Makes one session."""

    def __init__(self, kind: str, half: int) -> None:
        self.kind, self.half = kind, half
        self.chance = Random(f"{kind}/{half}")
        self.words = WORDS[half]

    def session(self) -> Session:
        chance = self.chance
        tools = tuple(chance.sample(TOOLS, chance.randrange(2, len(TOOLS) + 1)))
        left = int(MOST_CHARACTERS * _SHARES.get(self.kind, 1.0) * chance.choice((0.15, 0.4, 0.7, 1.0)))
        longest = max(200, left // chance.choice((3, 6, 12)))
        turns: list[Turn] = []
        while left > 0 and len(turns) < 19:
            first = not turns or not turns[-1].results
            asked = self._said(chance.choice((60, 200, 600))) if first or chance.random() < 0.08 else ""
            if turns and chance.random() < 0.2:
                turns.append(Turn(asked, (Text(self._said(chance.choice((120, 500)))),)))
                continue
            parts: list[Part] = [Text(self._said(90))] if chance.random() < 0.4 else []
            calls = [self._call(chance.choice(tools).name) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
            results = tuple(self._text(chance.randrange(20, longest)) for _ in calls)
            turns.append(Turn(asked, (*parts, *calls), results))
            left -= sum(map(len, results)) + 300
        turns.append(Turn("", (Text(self._said(300)),)))
        return Session(self.kind, self.half, chance.choice(_PERSONAS), tools, tuple(turns))

    def _text(self, length: int) -> str:
        """Of this kind, from anywhere in what there is."""
        pieces: list[str] = []
        while (have := sum(map(len, pieces))) < length:
            kind = self.chance.choice(KINDS[:-2]) if self.kind.startswith("mixed") else self.kind
            if kind in MADE:
                text = MADE[kind](self.chance, self.half)
            else:
                text = texts(self.half)[kind]
                text = text[text.find("\n", self.chance.randrange(len(text) // 2)) + 1 :]
            pieces.append(text[: length - have])
        return "\n".join(pieces)

    def _said(self, length: int) -> str:
        """Whole sentences, in the language of the session if it has one."""
        text = texts(self.half)[self.kind if self.kind in _LANGUAGES else "english"]
        lines = text.splitlines()
        said = ""
        while len(said) < length:
            said = f"{said} {self.chance.choice(lines)}".strip()
        return said[: length * 2]

    def _call(self, name: str) -> ToolUse:
        chance = self.chance
        a, b, c = chance.sample(self.words, 3)
        path = f"{a}/{b}_{c}.{chance.choice(('py', 'md', 'json', 'log', 'tsx'))}"
        arguments: dict[str, dict[str, Any]] = {
            "read_file": {"path": path, "first_line": chance.randrange(900)},
            "write_file": {"path": path, "content": self._text(chance.choice((80, 600)))},
            "search": {"pattern": rf"def {a}_\w+\(|class {b.title()}", "folder": f"src/{c}"},
            "run_command": {"command": f"cd {a} && grep -rn '{b}' --include='*.{c}' . | head -n 40"},
            "fetch_page": {"url": f"https://{a}.example.org/{b}/{c}?page={chance.randrange(99)}"},
            "query_database": {"sql": " ".join(("SELECT", a, "FROM", f"{b}s WHERE {c}_id = $1 GROUP BY 1"))},
            "list_folder": {"path": f"{a}/{b}"},
            "send_message": {"to": f"#{a}", "text": self._said(120)},
        }
        written = msgspec.json.encode(arguments[name]).decode()
        return ToolUse(f"call_{chance.getrandbits(64):x}", name, written)
