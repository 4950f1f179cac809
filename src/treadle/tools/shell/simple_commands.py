"""The result of parsing a line: simple commands, and the reason why they may not be all."""

from msgspec import Struct

from treadle.domain.command_patterns import CommandWords, Risk
from treadle.tools.shell.words import Word


class SimpleCommand(Struct, frozen=True):
    """One simple command."""

    words: tuple[str, ...]
    fed: bool = False
    """Its standard input is a pipe, a file or a text, not the empty input of the line."""
    fed_by: tuple[str, ...] = ()
    """The programs before it in the pipeline."""
    within: tuple[str, ...] = ()
    """The programs that run it: `timeout`, `sudo`, ..."""
    risks: tuple[Risk | None, ...] = ()
    """For each word, why a final ` *` of an allow rule does not cover it."""
    escapes: bool = False
    """Its options can run other programs or write files."""

    @property
    def program(self) -> str:
        return self.words[0]

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words[1:]

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(word for word in self.arguments if word.startswith("-") and word != "-")

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(word for word in self.arguments if not word.startswith("-") or word == "-")

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def marked_words(self) -> CommandWords:
        return CommandWords(self.words, self.risks, self.escapes)

    def has(self, *options: str) -> bool:
        """Return whether any of these is among its options: `-f` also within `-xf`, `--force` also as
        `--force=...`."""
        return any(_is_given(option, word) for option in options for word in self.options)


def _is_given(option: str, word: str) -> bool:
    if option.startswith("--"):
        return word == option or word.startswith(f"{option}=")
    return not word.startswith("--") and option[1] in word[1:]


class ParsedLine(Struct, frozen=True):
    calls: tuple[SimpleCommand, ...]
    opaque: str | None = None
    """Why the effect of the line cannot be determined."""
    only_by_path: tuple[str, ...] = ()
    """The programs named by a path, if that is the only reason."""
    only_by_options: bool = False
    """Options of its commands are the only reason."""

    @property
    def commands(self) -> tuple[str, ...]:
        """Return each command as its words with single spaces, without quotes."""
        return tuple(call.text for call in self.calls)


class CommandContext(Struct, frozen=True):
    """The position of a command in a line."""

    fed: bool = False
    fed_by: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    depth: int = 0

    def inside(self, program: str) -> "CommandContext":
        return CommandContext(self.fed, self.fed_by, (*self.within, program), self.depth + 1)


class InnerCommand(Struct, frozen=True):
    """What a command runs in turn: the words of another command, or a text for a shell."""

    words: tuple[Word, ...] = ()
    text: str | None = None


class Unwrapped(Struct, frozen=True):
    inner: tuple[InnerCommand, ...] = ()
    keep: bool = True
    """It has an effect of its own or lends its rights, so a rule must allow it too."""
    opaque: str | None = None
