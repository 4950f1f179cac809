"""Commands from typed functions: parsing, help and shell completion on top of `argparse`.

A command is a function whose parameters are annotated `Annotated[type, Option(...)]` or `Annotated[type,
Argument(...)]`; its docstring is its help. A group of commands lives in a module of its own, which is imported when
the group is used: `treadle --help` imports nothing else. typer and click were left out for their start-up time."""

import argparse
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar, Union, cast, get_args, get_origin

from treadle.surfaces.cli.help_text import page

Suggest = Callable[[str], Iterable[tuple[str, str]]]
"""Returns values that complete a beginning, each with a short description."""
Function = TypeVar("Function", bound=Callable[..., object])
USAGE_ERROR = 2


class Option:
    """A parameter that is given by name. `--yes/--no` names a switch with three states."""

    def __init__(
        self,
        *flags: str,
        help: str = "",
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        suggest: Suggest | None = None,
    ) -> None:
        self.flags = flags
        self.help = help
        self.metavar = metavar
        self.min, self.max = min, max
        self.suggest = suggest


class Argument:
    """A parameter that is given by position."""

    def __init__(
        self, *, metavar: str, help: str = "", suggest: Suggest | None = None, hidden: bool = False
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.suggest = suggest
        self.hidden = hidden


class Parameter(NamedTuple):
    """A parameter of a command, as its function declares it."""

    name: str
    kind: type
    """The type of one value."""
    choices: tuple[str, ...]
    repeats: bool
    optional: bool
    default: Any
    declared: Option | Argument

    @property
    def is_switch(self) -> bool:
        return self.kind is bool

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags; for `--yes/--no` both."""
        assert isinstance(self.declared, Option)
        given = self.declared.flags or (f"--{self.name.replace('_', '-')}",)
        return tuple(part for flag in given for part in flag.split("/"))

    @property
    def label(self) -> str:
        """How help shows the value."""
        if self.declared.metavar is not None:
            return self.declared.metavar
        return "|".join(self.choices) if self.choices else self.kind.__name__.upper()


class CliCommand:
    """A command of a group, or of `treadle` itself."""

    def __init__(self, path: str, function: Callable[..., Any], loop: Callable[[], Any] | None = None) -> None:
        self.path = path
        self.function = function
        self._loop = loop

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(_parameter(each) for each in inspect.signature(self.function).parameters.values())

    @property
    def summary(self) -> str:
        return " ".join((inspect.getdoc(self.function) or "").partition("\n\n")[0].split())

    @property
    def _arguments(self) -> list[Parameter]:
        return [each for each in self.parameters if isinstance(each.declared, Argument)]

    @property
    def options(self) -> list[Parameter]:
        return [each for each in self.parameters if isinstance(each.declared, Option)]

    def run(self, words: Sequence[str]) -> None:
        """Parse the words after the name of the command and call its function."""
        if any(word in ("-h", "--help") for word in words[: _end_of_options(words)]):
            print(self.help())
            return
        parser = _Parser(self.path)
        for each in self.options:
            _add(parser, each)
        self._check_flags(words, parser)
        end = _end_of_options(words)
        values, rest = parser.parse_known_args(list(words[:end]))
        arguments = self._read_arguments([*rest, *words[end + 1 :]], parser)
        from treadle.surfaces.terminal.process import perform

        perform(partial(self.function, **vars(values), **arguments), self._loop)

    def _check_flags(self, words: Sequence[str], parser: "_Parser") -> None:
        """Report an unknown option before anything that is missing."""
        known = {flag: each.is_switch for each in self.options for flag in each.flags}
        is_value = False
        for word in words[: _end_of_options(words)]:
            flag = word.partition("=")[0]
            if (
                not is_value
                and re.fullmatch(r"--?[a-zA-Z][\w-]*", flag)
                and flag[:2] not in known
                and flag not in known
            ):
                parser.error(f"unrecognized arguments: {flag}")
            is_value = not is_value and not known.get(word, True)

    def _read_arguments(self, words: list[str], parser: "_Parser") -> dict[str, Any]:
        values: dict[str, Any] = {}
        for each in self._arguments:
            taken, words = (words, []) if each.repeats else (words[:1], words[1:])
            if not taken and not each.optional:
                parser.error(f"the following arguments are required: {each.label}")
            try:
                read = [_reader(each)(word) for word in taken]
            except argparse.ArgumentTypeError as error:
                parser.error(f"argument {each.label}: {error}")
            values[each.name] = each.default if not read else read if each.repeats else read[0]
        if words:
            parser.error(f"unrecognized arguments: {words[0]}")
        return values

    @property
    def description(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def usage(self) -> str:
        labels = [label for label, _ in self.argument_rows]
        return " ".join([f"treadle {self.path}", *(["[OPTIONS]"] if self.options else []), *labels])

    @property
    def argument_rows(self) -> list[tuple[str, str]]:
        """The arguments and their descriptions."""
        shown = [each for each in self._arguments if not cast("Argument", each.declared).hidden]
        return [(each.label, _explain(each)) for each in shown]

    @property
    def option_rows(self) -> list[tuple[str, str]]:
        """The options and their descriptions."""
        return [(_flags_of(each), _explain(each)) for each in self.options]

    def help(self) -> str:
        options = [*self.option_rows, ("--help", "Print this message and exit.")]
        return page(self.usage, self.description, ("Arguments", self.argument_rows), ("Options", options))


class Group:
    """Commands that share a name, or none: those of `treadle` itself."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.summary = ""
        """What `treadle --help` says about it; set when the group is loaded."""
        self.commands: dict[str, CliCommand] = {}

    def command(self, name: str, loop: Callable[[], Any] | None = None) -> Callable[[Function], Function]:
        """Make a command of a function that returns an exit code, None for 0, or a coroutine of one. `loop` makes
        the event loop that the coroutine runs in."""

        def add(function: Function) -> Function:
            self.commands[name] = CliCommand(f"{self.name} {name}".strip(), function, loop)
            return function

        return add

    def run(self, words: Sequence[str]) -> None:
        if not words or words[0] in ("-h", "--help"):
            print(self.help())
        elif words[0] in self.commands:
            self.commands[words[0]].run(words[1:])
        else:
            refuse_command(f"{self.name} {words[0]}", words[0], self.commands, f"treadle {self.name} --help")

    def help(self) -> str:
        rows = [(command.name, _first_sentence(command.summary)) for command in self.commands.values()]
        return page(f"treadle {self.name} COMMAND [ARGS]...", self.summary, ("Commands", rows))


# ── Parsing ────────────────────────────────────────────────────────────────────────────────────────


class _Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def __init__(self, path: str) -> None:
        super().__init__(prog=f"treadle {path}", add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        refuse(f"{_plain(message)} `{self.prog} --help` shows what it takes.")


def refuse(message: str) -> NoReturn:
    """Report a mistake on the command line and exit."""
    from treadle.surfaces.terminal.output import print_error

    print_error(message)
    sys.exit(USAGE_ERROR)


def refuse_command(path: str, word: str, known: Iterable[str], help_command: str) -> NoReturn:
    """Report a command that does not exist, with the name that was probably meant."""
    from treadle.domain.suggestions import find_closest

    near = find_closest(word, list(known))
    meant = f" Did you mean `{near}`?" if near else ""
    refuse(f"There is no command `treadle {path}`.{meant} `{help_command}` lists the commands.")


def _plain(message: str) -> str:
    """Return a message of argparse as a sentence."""
    kind, _, rest = message.partition(": ")
    if kind == "unrecognized arguments":
        return f"No such option: {rest}." if rest.startswith("-") else f"Unexpected argument: `{rest}`."
    if kind == "the following arguments are required":
        return f"Missing: {rest}."
    if kind.startswith("argument "):
        return f"{kind.removeprefix('argument ').rpartition('/')[2]}: {rest.rstrip('.')}."
    return f"{message[:1].upper()}{message[1:].rstrip('.')}."


def _add(parser: _Parser, each: Parameter) -> None:
    assert isinstance(each.declared, Option)
    if each.is_switch:
        on, *off = each.flags if "/" in "".join(each.declared.flags) else (each.flags[-1],)
        names = [on] if off else list(each.flags)
        parser.add_argument(*names, dest=each.name, action="store_const", const=True, default=each.default)
        for flag in off:
            parser.add_argument(flag, dest=each.name, action="store_const", const=False, default=each.default)
        return
    parser.add_argument(
        *each.flags,
        dest=each.name,
        action="append" if each.repeats else "store",
        type=_reader(each),
        default=each.default,
        required=not each.optional,
        metavar=each.label,
    )


def _reader(each: Parameter) -> Callable[[str], Any]:
    """Return the function that reads one value and raises `ArgumentTypeError` for a wrong one."""
    least = each.declared.min if isinstance(each.declared, Option) else None
    most = each.declared.max if isinstance(each.declared, Option) else None

    def read(text: str) -> Any:
        if each.choices:
            if text not in each.choices:
                raise argparse.ArgumentTypeError(f"`{text}` is not one of {', '.join(each.choices)}")
            return each.kind(text)
        try:
            value = each.kind(text)
        except ValueError:
            kinds = {int: "a whole number", float: "a number"}
            raise argparse.ArgumentTypeError(f"`{text}` is not {kinds.get(each.kind, 'valid')}") from None
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = f"at least {least:g}" if most is None else f"between {least:g} and {most:g}"
            raise argparse.ArgumentTypeError(f"`{text}` is not {bounds}")
        return value

    return read


def _parameter(parameter: inspect.Parameter) -> Parameter:
    """Read the declaration of a parameter from its annotation."""
    annotation, declared = get_args(parameter.annotation)
    assert isinstance(declared, Option | Argument), parameter.name
    has_default = parameter.default is not inspect.Parameter.empty
    kind, repeats = _without_none(annotation), False
    if get_origin(kind) is list:
        kind, repeats = get_args(kind)[0], True
    choices: tuple[str, ...] = ()
    if get_origin(kind) is Literal:
        kind, choices = str, get_args(kind)
    elif issubclass(kind, Enum):
        choices = tuple(str(each.value) for each in kind)
    default = parameter.default if has_default else None
    return Parameter(
        name=parameter.name,
        kind=kind,
        choices=choices,
        repeats=repeats,
        optional=has_default,
        default=default,
        declared=declared,
    )


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(each for each in get_args(annotation) if each is not types.NoneType)
    return annotation


def _end_of_options(words: Sequence[str]) -> int:
    return words.index("--") if "--" in words else len(words)


# ── Help ───────────────────────────────────────────────────────────────────────────────────────────


def _flags_of(each: Parameter) -> str:
    declared = cast("Option", each.declared)
    flags = ", ".join(declared.flags or each.flags)
    return flags if each.is_switch else f"{flags} {each.label}"


def _explain(each: Parameter) -> str:
    if isinstance(each.declared, Option):
        if not each.optional:
            return f"{each.declared.help} Required."
        if each.default not in (None, False, (), "") and "Default:" not in each.declared.help:
            default = each.default.value if isinstance(each.default, Enum) else each.default
            shown = f"{default:g}" if isinstance(default, float) else default
            return f"{each.declared.help} Default: {shown}."
    return each.declared.help


def _first_sentence(text: str) -> str:
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]
