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
        "builtin", "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo", "time",
        "timeout",
    }
)  # fmt: skip
_GIT_TAKES_A_WORD: Final = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace"))
_NEVER_FAILS: Final = frozenset(
    {
        "echo", "printf", "true", ":",
    }
)  # fmt: skip
_ASSIGNMENT_OR_AMOUNT: Final = re.compile(r"[A-Za-z_]\w*=.*|[0-9.]+[a-z]?", re.DOTALL)
_MAX_DEPTH: Final = 40
_LAST_COUNTS: Final = frozenset(
    {
        "program", "list", "pipeline", "compound_statement", "subshell", "do_group", "if_statement",
        "elif_clause", "else_clause", "case_statement", "case_item", "while_statement", "for_statement",
    }
)  # fmt: skip


def is_failure(line: str, status: int | None) -> bool:
    """Return whether the status means that the line failed. A `grep` without matches, a `diff` that differs and a
    `test` that is false have not failed; a program that was not found, or was killed, has."""
    if not status:
        return False
    if status != ANSWER_STATUS:
        return True
    source = line.encode("utf-8", "surrogatepass")
    if (
        len(source) > MAX_BYTES
        or len(source) - len(source.translate(None, SYNTAX_CHARACTERS)) > MAX_SYNTAX_CHARACTERS
    ):
        return True
    root = parse_syntax(source)
    return root.has_error or not _is_answer(root, _MAX_DEPTH)


def _is_answer(node: Node, depth: int) -> bool:
    """Return whether status 1 of this part of a line is an answer."""
    if depth < 0:
        return False
    match node.type:
        case "command":
            return _is_command_answer(_command_words(node))
        case "negated_command" | "test_command":
            return True
        case "redirected_statement":
            body = node.child_by_field_name("body")
            return body is not None and _is_answer(body, depth - 1)
        case kind if kind in _LAST_COUNTS:
            return _is_last_answer(node, depth)
        case _:
            return False


def _is_last_answer(node: Node, depth: int) -> bool:
    parts = [child for child in node.children if child.is_named and child.type != "comment"]
    if not parts:
        return False
    if _is_answer(parts[-1], depth - 1):
        return True
    after_and = len(parts) > 1 and any(child.type == "&&" for child in node.children)
    return after_and and _never_fails(parts[-1]) and _is_answer(parts[-2], depth - 1)


def _never_fails(node: Node) -> bool:
    if node.type == "redirected_statement":
        return any(_never_fails(child) for child in node.children)
    return node.type == "command" and _command_words(node)[:1] != [] and _command_words(node)[0] in _NEVER_FAILS


def _is_command_answer(words: list[str]) -> bool:
    """Return whether a simple command answers with its status, itself or as the command that a wrapper runs."""
    while words:
        program, *arguments = words
        if program == "git":
            return _git_subcommand(arguments) in _ANSWERING_GIT_VERBS
        if program == "command" and arguments and not arguments[0].startswith(("-v", "-V")):
            words = arguments
        elif program in _ANSWERING_PROGRAMS:
            return True
        elif program in _WRAPPERS:
            while arguments and (arguments[0].startswith("-") or _ASSIGNMENT_OR_AMOUNT.fullmatch(arguments[0])):
                arguments = arguments[1:]
            words = [posixpath.basename(arguments[0]), *arguments[1:]] if arguments else []
        else:
            return False
    return False


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
