"""The tables of commands that wait for a terminal and of those that somebody is asked about."""

import pytest

from treadle.tools.shell.destructive import CAUTION_RULES, caution_about
from treadle.tools.shell.parser import commands_of
from treadle.tools.shell.rules import CommandRule, RuleTable
from treadle.tools.shell.terminal import TERMINAL_RULES, waits_for_terminal

each = pytest.mark.parametrize


def test_every_rule_does_what_its_examples_say() -> None:
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
def test_what_waits_for_a_terminal(line: str) -> None:
    told = waits_for_terminal(commands_of(f"cd x && {line}"))
    assert told is not None
    assert told.endswith(".")


@each("line", [line for rule in TERMINAL_RULES for line in rule.no_match])
def test_what_does_not(line: str) -> None:
    assert waits_for_terminal(commands_of(line)) is None


@each("line", [line for rule in CAUTION_RULES for line in rule.match] + [":(){ :|:& };:", "f() { f | f & }; f"])
def test_what_is_asked_about(line: str) -> None:
    assert caution_about(line, commands_of(line)) is not None


@each("line", [line for rule in CAUTION_RULES for line in rule.no_match] + ["f() { ls | wc & }; f"])
def test_what_is_not(line: str) -> None:
    assert caution_about(line, commands_of(line)) is None
