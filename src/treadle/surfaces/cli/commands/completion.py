"""`treadle completion`: the script that a shell loads, and the words that it offers."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from treadle.surfaces.cli.command_line import Argument, CliCommand, Group, Parameter
from treadle.surfaces.cli.command_table import COMMANDS, GROUPS, find_command, load_group

group = Group()
Words = Iterable[tuple[str, str]]

SCRIPTS = {
    "bash": """\
_treadle() {
    local IFS=$'\\n'
    COMPREPLY=($(treadle __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _treadle treadle
""",
    "zsh": """\
#compdef treadle
_treadle() {
    local -a offers
    offers=("${(@f)$(treadle __complete "${(@)words[2,CURRENT]}" 2>/dev/null |
        sed -e 's/:/\\\\:/g' -e 's/\\t/:/')}")
    [[ -n "$offers" ]] && _describe treadle offers || _files
}
compdef _treadle treadle
""",
    "fish": """\
complete -c treadle -f -a "(treadle __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)"
""",
}
"""Each calls `treadle __complete` with the words up to the cursor and reads lines of `word TAB description`."""


@group.command("completion")
def print_script(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script that completes commands in a shell.

    bash: `eval "$(treadle completion bash)"` in ~/.bashrc. zsh: the same with zsh in ~/.zshrc, after compinit.
    fish: `treadle completion fish > ~/.config/fish/completions/treadle.fish`."""
    print(SCRIPTS[shell], end="")


def print_offers(words: Sequence[str]) -> None:
    """Print what can follow these words; the last of them is incomplete."""
    for word, description in offers(words or [""]):
        print(f"{word}\t{description}" if description else word)


def offers(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the words that can stand in the place of the last one."""
    *before, beginning = words
    if not before:
        found: Words = [(name, entry.summary) for name, entry in {**COMMANDS, **GROUPS}.items()]
    elif len(before) == 1 and before[0] in GROUPS:
        commands = load_group(GROUPS[before[0]]).commands.values()
        found = [(command.name, command.summary) for command in commands]
    elif (command := find_command(before)) is not None:
        given = before[1 if before[0] in COMMANDS else 2 :]
        found = _complete_command(command, given, beginning)
    else:
        found = []
    return [(word, description) for word, description in found if word.startswith(beginning)]


def _complete_command(command: CliCommand, given: Sequence[str], beginning: str) -> Words:
    options = {flag: each for each in command.options for flag in each.flags}
    if given and (option := options.get(given[-1])) is not None and not option.is_switch:
        return _values(option, beginning)
    if beginning.startswith("-"):
        return [(flag, each.declared.help) for flag, each in options.items()]
    arguments = [each for each in command.parameters if isinstance(each.declared, Argument)]
    place = _positional_count(given, options)
    if place < len(arguments):
        return _values(arguments[place], beginning)
    return _values(arguments[-1], beginning) if arguments and arguments[-1].repeats else []


def _values(each: Parameter, beginning: str) -> Words:
    if each.choices:
        return [(choice, "") for choice in each.choices]
    return each.declared.suggest(beginning) if each.declared.suggest is not None else []


def _positional_count(given: Sequence[str], options: dict[str, Parameter]) -> int:
    count, is_value = 0, False
    for word in given:
        if is_value:
            is_value = False
        elif word.startswith("-"):
            option = options.get(word)
            is_value = option is not None and not option.is_switch
        else:
            count += 1
    return count
