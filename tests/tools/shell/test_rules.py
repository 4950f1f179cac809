"""The tables of commands that wait for a terminal and of commands that need approval."""

import pytest

from treadle.tools.shell.destructive import CAUTION_RULES, find_caution
from treadle.tools.shell.parser import parse_commands
from treadle.tools.shell.rules import CommandRule, RuleTable
from treadle.tools.shell.terminal import TERMINAL_RULES, find_terminal_advice

each = pytest.mark.parametrize


def test_every_rule_matches_its_examples() -> None:
    RuleTable(TERMINAL_RULES)
    RuleTable(CAUTION_RULES)
    assert all(rule.match and rule.no_match for rule in (*TERMINAL_RULES, *CAUTION_RULES))


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


@each("line", [line for rule in CAUTION_RULES for line in rule.match] + [":(){ :|:& };:", "f() { f | f & }; f"])
def test_dangerous_commands_need_approval(line: str) -> None:
    assert find_caution(line, parse_commands(line)) is not None


@each("line", [line for rule in CAUTION_RULES for line in rule.no_match] + ["f() { ls | wc & }; f"])
def test_ordinary_commands_need_no_approval(line: str) -> None:
    assert find_caution(line, parse_commands(line)) is None
