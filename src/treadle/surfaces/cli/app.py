"""The command line of `treadle`: it runs the command that the first word names."""

import gc
import os
import sys
from collections.abc import Sequence

import treadle
from treadle.domain.version import VERSION
from treadle.surfaces.cli.command_table import COMMANDS, GROUPS, load_group

PIPE_CLOSED = 141
"""The exit code after the reader of the output has closed it, as a shell reports it."""
OPTIONS = [
    ("-p, --print MESSAGE", "Print the answer to a message: `treadle run`."),
    ("--version", "Print the version and exit."),
    ("--help", "Print this message and exit."),
]
START_UP_OBJECTS = 200_000
"""More objects than a command makes until it does its work."""


def run(words: Sequence[str]) -> None:
    """Run a command line, without the name of the program."""
    words = name_command(words)
    first = words[0]
    if first in ("-h", "--help"):
        print(_help())
    elif first == "--version":
        print(f"treadle {VERSION}")
    elif first == "__complete":
        from treadle.surfaces.cli.commands.completion import print_offers

        print_offers(words[1:])
    elif first in COMMANDS:
        _guard_imports()
        load_group(COMMANDS[first]).commands[first].run(words[1:])
    elif first in GROUPS:
        _guard_imports()
        load_group(GROUPS[first]).run(words[1:])
    else:
        _refuse(first)


def name_command(words: Sequence[str]) -> Sequence[str]:
    """Return a command line with the command that it means: `chat` if it begins with a message of several words or
    with an option of `chat`, and `run` if it begins with `-p`."""
    if not words:
        return [_default_command()]
    first = words[0]
    if first in ("-p", "--print"):
        return ["run", *words[1:]]
    if first in ("-h", "--help", "--version") or (not first.startswith("-") and len(first.split()) < 2):
        return words
    options = load_group(COMMANDS["chat"]).commands["chat"].options
    flags = {flag for each in options for flag in each.flags}
    is_chat = not first.startswith("-") or first.partition("=")[0] in flags
    return ["chat", *words] if is_chat else words


def _default_command() -> str:
    """Return what `treadle` alone does: open the terminal UI on a terminal that has it, else print help."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        return "--help"
    from importlib.util import find_spec

    if find_spec("textual") is not None:
        return "chat"
    from treadle.surfaces.tui.texts import INSTALL

    print(f"{_help()}\n\n{INSTALL}")
    sys.exit(0)


def _refuse(word: str) -> None:
    from treadle.surfaces.cli.command_line import refuse, refuse_command

    if word.startswith("-"):
        refuse(f"No such option: {word}. `treadle --help` lists the options.")
    refuse_command(word, word, {**COMMANDS, **GROUPS}, "treadle --help")


def _help() -> str:
    from treadle.surfaces.cli.help_text import page

    return page(
        "treadle [OPTIONS] COMMAND [ARGS]...",
        "Treadle runs agents: durable, guarded, observable.\n\n"
        "Without a command it opens the terminal UI, with the options of `treadle chat` or with a message: "
        'treadle "fix the tests".',
        ("Commands", [(name, entry.summary) for name, entry in COMMANDS.items()]),
        ("Groups of commands", [(name, entry.summary) for name, entry in GROUPS.items()]),
        ("Options", OPTIONS),
    )


def _guard_imports() -> None:
    """Import nothing from the current folder, which is the workspace of most commands, if the search path has more
    than the environment of Treadle."""
    environment = (f"{sys.prefix}/", f"{sys.base_prefix}/", os.path.dirname(treadle.__path__[0]))
    if all(entry.startswith(environment) for entry in sys.path):
        return
    from treadle.domain.writable_places import WritablePlaces
    from treadle.system.engine_places import list_engine_places
    from treadle.system.import_guard import guard_imports

    engine = list_engine_places()
    guard_imports(engine).exclude(WritablePlaces((os.path.realpath(os.curdir),), engine.all))


def main() -> None:
    """Run the command line of this process. A reader that closes the output is not an error.

    The objects of a start-up live until the end. Looking for garbage among them would cost a fifth
    of the CPU time of `treadle run`."""
    gc.set_threshold(START_UP_OBJECTS, 10, 10)
    try:
        run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    finally:
        gc.freeze()
