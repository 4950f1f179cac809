"""The tables of commands that wait for a terminal and of commands that need approval."""

import pytest

from treadle.tools.shell.destructive import ALWAYS_ASKED_RULES, find_caution, find_destruction
from treadle.tools.shell.destructive_rules import DESTRUCTIVE_RULES
from treadle.tools.shell.parser import parse_commands
from treadle.tools.shell.rules import CommandRule, RuleTable
from treadle.tools.shell.terminal import TERMINAL_RULES, find_terminal_advice

each = pytest.mark.parametrize


def test_every_rule_matches_its_examples() -> None:
    RuleTable(TERMINAL_RULES)
    RuleTable(ALWAYS_ASKED_RULES)
    RuleTable(DESTRUCTIVE_RULES)
    assert all(rule.match and rule.no_match for rule in (*TERMINAL_RULES, *ALWAYS_ASKED_RULES, *DESTRUCTIVE_RULES))


@each(
    ("match", "no_match", "told"),
    [(("less x",), (), "does not match"), (("vim x",), ("vim y",), "which it must not")],
)
def test_a_rule_with_wrong_examples_is_refused(
    match: tuple[str, ...], no_match: tuple[str, ...], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        RuleTable([CommandRule(("vim",), "is an editor", match, no_match)])


@each("line", [line for rule in TERMINAL_RULES for line in rule.match])
def test_commands_that_wait_for_a_terminal_get_advice(line: str) -> None:
    told = find_terminal_advice(parse_commands(f"cd x && {line}"))
    assert told is not None
    assert told.endswith(".")


@each("line", [line for rule in TERMINAL_RULES for line in rule.no_match])
def test_other_commands_get_no_terminal_advice(line: str) -> None:
    assert find_terminal_advice(parse_commands(line)) is None


@each(
    "line", [line for rule in ALWAYS_ASKED_RULES for line in rule.match] + [":(){ :|:& };:", "f() { f | f & }; f"]
)
def test_dangerous_commands_need_approval(line: str) -> None:
    assert find_caution(line, parse_commands(line)) is not None


@each("line", [line for rule in ALWAYS_ASKED_RULES for line in rule.no_match] + ["f() { ls | wc & }; f"])
def test_ordinary_commands_need_no_approval(line: str) -> None:
    assert find_caution(line, parse_commands(line)) is None


@each(
    "line",
    [line for rule in (*ALWAYS_ASKED_RULES, *DESTRUCTIVE_RULES) for line in rule.match]
    + [
        "echo x > /dev/sda",
        "cat x >| /dev/nvme0n1",
        "env A=1 git reset --hard",
        "sudo -n git clean -fdx",
        "ls; rm -rf src",
    ],
)
def test_destructive_commands_are_known(line: str) -> None:
    assert find_destruction(line, parse_commands(line)) is not None


@each(
    "line",
    ["echo x > /dev/null", "ls 2>/dev/null", "git status", "rm x", "make clean", "npm run build", "cat x > y"],
)
def test_ordinary_commands_destroy_nothing(line: str) -> None:
    assert find_destruction(line, parse_commands(line)) is None
