"""Interprets the exit status of a command line: a failure, or an answer such as "no line matches".

The command that set the status decides, according to the shell's grammar. If it cannot be determined, a status
other than 0 is a failure."""

import posixpath
import re
from typing import Final

from tree_sitter import Node

from treadle.tools.shell.parser import MAX_BYTES, MAX_SYNTAX_CHARACTERS, SYNTAX_CHARACTERS, parse_syntax

ANSWER_STATUS: Final = 1
"""The status with which these programs answer no."""
XARGS_STATUS: Final = 123
"""The status of `xargs` if a command that it ran had a status other than 0."""
_ANSWERING_PROGRAMS: Final = frozenset(
    {
        "grep", "egrep", "fgrep", "rgrep", "zgrep", "bzgrep", "xzgrep", "pgrep", "pidof", "rg", "ag", "ack",
        "ugrep", "diff", "diff3", "sdiff", "colordiff", "zdiff", "cmp", "zcmp", "test", "[", "expr", "which",
        "type", "hash", "command", "let",
    }
)  # fmt: skip
_ANSWERING_GIT_VERBS: Final = frozenset(
    {
        "grep", "diff", "merge-base", "show-ref", "check-ignore", "config", "rev-parse", "ls-files",
    }
)  # fmt: skip
_WRAPPERS: Final = frozenset(
    {
        "builtin", "busybox", "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo",
        "time", "timeout",
    }
)  # fmt: skip
_GIT_TAKES_A_WORD: Final = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace"))
_NEVER_FAILS: Final = frozenset(
    {
        "echo", "printf", "true", ":",
    }
)  # fmt: skip
_PLAIN_UTILITIES: Final = frozenset(
    {
        ".", "awk", "cat", "cd", "chmod", "cp", "cut", "find", "head", "ln", "ls", "mkdir", "mv", "popd", "pushd",
        "rm", "sed", "sleep", "sort", "source", "stat", "tail", "tee", "touch", "tr", "wc",
    }
)  # fmt: skip
"""Programs that name themselves in a message if they fail."""
_SHELLS: Final = frozenset(("bash", "sh", "dash", "zsh", "ash"))
_XARGS_TAKES_A_WORD: Final = frozenset(("-I", "-n", "-P", "-L", "-d", "-a", "-s", "-E"))
_ASSIGNMENT_OR_AMOUNT: Final = re.compile(r"[A-Za-z_]\w*=.*|[0-9.]+[a-z]?", re.DOTALL)
_MAX_DEPTH: Final = 40
_LAST_COUNTS: Final = frozenset(
    {
        "program", "list", "pipeline", "compound_statement", "subshell", "do_group", "if_statement",
        "elif_clause", "else_clause", "case_statement", "case_item", "while_statement", "for_statement",
    }
)  # fmt: skip


def is_failure(line: str, status: int | None, output: str = "") -> bool:
    """Return whether the status means that the line failed. A `grep` without matches, a `diff` that differs and a
    `test` that is false have not failed; a program that was not found, or was killed, has."""
    if not status:
        return False
    if status not in (ANSWER_STATUS, XARGS_STATUS):
        return True
    source = line.encode("utf-8", "surrogatepass")
    if (
        len(source) > MAX_BYTES
        or len(source) - len(source.translate(None, SYNTAX_CHARACTERS)) > MAX_SYNTAX_CHARACTERS
    ):
        return True
    root = parse_syntax(source)
    return root.has_error or not _StatusReader(status, output).is_answer(root, _MAX_DEPTH)


class _StatusReader:
    """Decides which command of a line set its status, and whether that is an answer."""

    def __init__(self, status: int, output: str) -> None:
        self._status = status
        self._output = output

    def is_answer(self, node: Node, depth: int) -> bool:
        """Return whether the status of this part of a line is an answer."""
        if depth < 0:
            return False
        match node.type:
            case "command":
                return self._is_command_answer(_command_words(node), depth)
            case "negated_command" | "test_command":
                return self._status == ANSWER_STATUS
            case "redirected_statement":
                body = node.child_by_field_name("body")
                return body is not None and self.is_answer(body, depth - 1)
            case kind if kind in _LAST_COUNTS:
                return self._is_last_answer(node, depth)
            case _:
                return False

    def _is_last_answer(self, node: Node, depth: int) -> bool:
        parts = [child for child in node.children if child.is_named and child.type != "comment"]
        if not parts:
            return False
        after_and = len(parts) > 1 and any(child.type == "&&" for child in node.children)
        if self.is_answer(parts[-1], depth - 1):
            return not after_and or all(self._has_passed(part, depth - 1) for part in parts[:-1])
        return after_and and _never_fails(parts[-1]) and self.is_answer(parts[-2], depth - 1)

    def _has_passed(self, node: Node, depth: int) -> bool:
        """Return whether a command before `&&` did not fail, so that the status is not its own: it cannot fail, its
        status is an answer too, or it would have said so in the output."""
        if depth < 0:
            return False
        if _never_fails(node) or node.type in ("variable_assignment", "declaration_command"):
            return True
        if node.type == "list":
            return all(self._has_passed(part, depth - 1) for part in node.children if part.is_named)
        if self.is_answer(node, depth - 1):
            return True
        command = node.children[-1] if node.type == "pipeline" and node.children else node
        program = next(iter(_command_words(command)), "") if command.type == "command" else ""
        if program not in _PLAIN_UTILITIES:
            return False
        return re.search(rf"^(?:[^\n]{{0,200}}: )?{re.escape(program)}: ", self._output, re.MULTILINE) is None

    def _is_command_answer(self, words: list[str], depth: int) -> bool:
        """Return whether a simple command answers with its status, itself or as the command that a wrapper
        runs."""
        while words:
            program, *arguments = words
            if program == "xargs":
                if self._status != XARGS_STATUS:
                    return False
                return _StatusReader(ANSWER_STATUS, "")._is_command_answer(_skip_options(arguments), depth)
            if program == "command" and arguments and not arguments[0].startswith(("-v", "-V")):
                words = arguments
            elif program in _WRAPPERS and not (program == "command" and arguments):
                while arguments and (arguments[0].startswith("-") or _ASSIGNMENT_OR_AMOUNT.fullmatch(arguments[0])):
                    arguments = arguments[1:]
                words = [posixpath.basename(arguments[0]), *arguments[1:]] if arguments else []
            elif program in _SHELLS:
                return self._is_script_answer(arguments, depth)
            else:
                return self._status == ANSWER_STATUS and self._is_program_answer(program, arguments)
        return False

    def _is_program_answer(self, program: str, arguments: list[str]) -> bool:
        if program == "git":
            return _git_subcommand(arguments) in _ANSWERING_GIT_VERBS
        if program == "find":  # its status is that of the command that it runs with `+`
            run = next((place for place, word in enumerate(arguments) if word in ("-exec", "-execdir")), None)
            is_complaint = re.search(r"^find: ", self._output, re.MULTILINE) is not None
            return (
                run is not None
                and not is_complaint
                and arguments[run + 1 : run + 2] != []
                and (posixpath.basename(arguments[run + 1]) in _ANSWERING_PROGRAMS)
            )
        return program in _ANSWERING_PROGRAMS

    def _is_script_answer(self, arguments: list[str], depth: int) -> bool:
        """Return whether the script of `bash -c` answers with its status."""
        place = next((at for at, word in enumerate(arguments) if re.fullmatch(r"-[a-z]*c", word)), None)
        if place is None or len(arguments) != place + 2:
            return False
        root = parse_syntax(arguments[place + 1].encode("utf-8", "surrogatepass"))
        return not root.has_error and self.is_answer(root, depth - 1)


def _skip_options(arguments: list[str]) -> list[str]:
    """Return the command in the arguments of `xargs`."""
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[2 if arguments[0] in _XARGS_TAKES_A_WORD else 1 :]
    return [posixpath.basename(arguments[0]), *arguments[1:]] if arguments else []


def _never_fails(node: Node) -> bool:
    if node.type == "redirected_statement":
        return any(_never_fails(child) for child in node.children)
    return node.type == "command" and _command_words(node)[:1] != [] and _command_words(node)[0] in _NEVER_FAILS


def _git_subcommand(arguments: list[str]) -> str:
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[2 if arguments[0] in _GIT_TAKES_A_WORD else 1 :]
    return arguments[0] if arguments else ""


def _command_words(command: Node) -> list[str]:
    """Return the words of a simple command as written, without plain quotes, and its program without a path."""
    words: list[str] = []
    for child in command.children:
        if child.is_named and child.type not in ("variable_assignment", "file_redirect", "herestring_redirect"):
            text = (child.text or b"").decode("utf-8", "replace")
            words.append(text.strip("\"'").removeprefix("\\"))
    return [posixpath.basename(words[0]), *words[1:]] if words else []
