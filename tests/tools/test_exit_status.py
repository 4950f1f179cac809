"""Which exit statuses of command lines are failures, and which are answers."""

import pytest

from treadle.tools.shell.exit_status import is_failure

ANSWERS = [
    "grep x file", "grep -rn 'a b' src | grep -v test", "cat a | grep x", "cd src && grep -q x y.py", "rg TODO",
    "diff a b", "git diff --quiet", "git -C repo diff --exit-code", "git grep foo", "cmp a b > /dev/null",
    "test -f x", "[ -f x ]", "[[ -n $A ]]", "test -f x && echo yes", "make; grep x log", "! true",
    "(cd a; diff x y)",
    "timeout 5 grep x y", "env A=1 grep x y", "/usr/bin/grep x y", "A=1 grep x y", "pgrep python", "which node",
    "command -v node", "command grep x y", "for f in *; do grep x $f; done", "grep x <<< text", "{ diff a b; }",
    "bash -c 'grep x f'", "sh -ec 'cd a && grep x f'", "busybox grep x f",
    "find . -name '*.py' -exec grep -l x {} +", "grep -q a f && grep x g",
    "export A=1 && grep x f", "cd a && cat f | head -3 && grep x g",
]  # fmt: skip
FAILURES = [
    "pytest", "pytest -q | tail -5", "python -c 'import x'", "make test", "false", "grep x y; make",
    "grep x y | make", "cat missing", "ls missing && grep x y; pytest", "grep x y || make", "exit 1",
    "npm test", "git commit -m x",
    "git status", "mypy . # grep", "echo $(grep x y) | pytest", "command pytest", "timeout 5 pytest", "cd grep",
    "if true; then pytest; fi", "'unfinished", "", "f() { grep x; }; f2",
    "false && grep x f", "pytest && grep x f", "make 2>&1 && grep x f", "cat f 2>/dev/null && grep x f",
    "bash -c 'pytest'", "bash script.sh", "busybox cat f", "find . -exec cat {} +", "xargs grep x",
]  # fmt: skip


@pytest.mark.parametrize("line", ANSWERS)
def test_a_negative_answer_is_not_a_failure(line: str) -> None:
    assert not is_failure(line, 1)
    assert not is_failure(line, 0)
    for status in (2, 124, 126, 127, 130, 137, 139, 143):
        assert is_failure(line, status)


@pytest.mark.parametrize("line", FAILURES)
def test_every_other_status_is_a_failure(line: str) -> None:
    assert is_failure(line, 1)
    assert not is_failure(line, 0)
    assert not is_failure(line, None)


def test_a_line_that_is_too_long_to_analyse_counts_as_failed() -> None:
    assert is_failure("grep x " + "$(" * 2000, 1)
    assert is_failure("grep " + "x" * 200_000, 1)


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("cd missing && grep x f", "/bin/bash: line 1: cd: missing: No such file or directory\n"),
        ("cat nofile && grep x f", "cat: nofile: No such file or directory\n"),
        ("cd a && cat b && grep x f", "cat: b: Is a directory\n"),
        ("find . -exec grep x {} +", "find: './a': Permission denied\n"),
    ],
)
def test_an_error_before_an_answering_command_is_a_failure(line: str, output: str) -> None:
    assert is_failure(line, 1, output)
    assert not is_failure(line, 1, "one line\nof its own output\n")


@pytest.mark.parametrize("line", ["find . | xargs grep x", "ls | xargs -0 -n 1 -P4 grep x", "time xargs rg x"])
def test_xargs_passes_on_the_answer_of_its_command(line: str) -> None:
    assert not is_failure(line, 123)
    assert is_failure(line, 1)
    assert is_failure(line, 124)


@pytest.mark.parametrize("line", ["ls | xargs cat", "grep x f", "test -f x", "bash -c 'grep x f'"])
def test_status_123_of_other_commands_is_a_failure(line: str) -> None:
    assert is_failure(line, 123)
