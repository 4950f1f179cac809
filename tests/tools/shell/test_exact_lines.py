"""Patterns for exactly one command line: they allow this line, and nothing else."""

import pytest
from hypothesis import assume, example, given, settings

from tests.domain.test_envelope import ORIGIN
from tests.tools.shell.test_parsing import FRAGMENTS
from treadle.core.fold import fold
from treadle.core.state import new_state
from treadle.core.tools.permissions import apply_all_rules, apply_rules, extend_rules, rule_on_call
from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunQueued
from treadle.domain.ids import RunId
from treadle.domain.lineage import Lineage
from treadle.domain.permissions import ApprovalRule, ApprovalRules, Verdict, make_exact_pattern
from treadle.domain.tools import ToolSpec
from treadle.ports.approvals import Grant
from treadle.ports.tool import Subjects
from treadle.sandbox.commands import ShellCommands
from treadle.tools.bash import Bash, BashArguments

TOOL = Bash(ShellCommands())
BASH: ToolSpec = TOOL.spec
ASKS = ApprovalRules(default="ask")
LINES = (
    "make test 2>&1 | tail -3", "cd sub && make test", "echo x > f", "python -m pytest -q", "ls *.c | wc -l",
    "rm -f [ab].o; ls", "ls ?.c | sort", "! grep -q [!a] x; ls", "bash x.sh", "timeout 5 make", "git -C x status",
    "echo $(date) >> log", "./a.sh && ./b.sh", "for f in *; do cat $f; ls; done", "> f",
    "sed -n 1p x", "git frobnicate",
)  # fmt: skip
"""Lines that no glob is offered for."""


def offer(line: str) -> str | None:
    return TOOL.subjects(BashArguments(line)).pattern


def verdict(line: str, *patterns: str, approvals: ApprovalRules = ASKS) -> Verdict:
    """Return the verdict on a line after these patterns were allowed for the session."""
    grants = [Grant("bash", pattern) for pattern in patterns]
    return apply_rules(approvals, BASH, TOOL.subjects(BashArguments(line)), grants).verdict


def allow(*patterns: str, **settings: Verdict) -> ApprovalRules:
    """Return the rules of an agent with these patterns in its file of permanent permissions."""
    rules = [ApprovalRule("bash", "auto", pattern) for pattern in patterns]
    rules += [ApprovalRule("bash", do, match.replace("_", " ")) for match, do in settings.items()]
    return ApprovalRules(default="ask", rules=tuple(rules))


@pytest.mark.parametrize("line", LINES)
def test_a_line_without_a_glob_is_offered_as_it_is(line: str) -> None:
    pattern = f"exactly: {line}"
    assert offer(f" {line}\n") == pattern
    assert verdict(line) == "ask"
    assert verdict(line, pattern) == "auto"
    assert verdict(f"\t{line} \n", pattern) == "auto", "the blanks around a line mean nothing"
    assert verdict(line, approvals=allow(pattern)) == "auto"


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "change",
    [
        "{}; rm x",
        "{} && rm x",
        "{} | sh",
        "rm x; {}",
        "{} x",
        "{}\nrm x",
        "{}x",
        "({})",
        "{} &",
        "{}\u00a0",
        "{} #",
    ],
)
def test_an_exact_rule_allows_no_longer_line(line: str, change: str) -> None:
    other = change.format(line)
    assert verdict(other, f"exactly: {line}") == "ask"
    assert verdict(other, approvals=allow(f"exactly: {line}")) == "ask"


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("python -m pytest -q", "python  -m pytest -q"),
        ("python -m pytest -q", "python -m 'pytest -q'"),
        ("python -m pytest -q", "python -m pytest -q > x"),
        ("ls *.c | wc -l", "ls a.c | wc -l"),
        ("rm [ab] | cat", "rm a | cat"),
        ("ls ? | sort", "ls a | sort"),
        ("ls [!a] | sort", "ls b | sort"),
        ("git -c alias.x=!rm -rf y x", "git -c 'alias.x=!rm -rf y' x"),
        ("cd sub && make", "cd 'sub && make'"),
        ("env 'a b'", "env a b"),
        ("ls | cat \\", "ls | cat \\ "),
    ],
)
def test_an_exact_rule_allows_no_other_spelling(line: str, other: str) -> None:
    assert offer(line) == f"exactly: {line}"
    assert verdict(line, f"exactly: {line}") == "auto"
    assert verdict(other, f"exactly: {line}") == "ask"
    assert verdict(other, approvals=allow(f"exactly: {line}")) == "ask"


@settings(max_examples=200, deadline=None)
@given(FRAGMENTS, FRAGMENTS)
@example("a '|' b", "a | b")
@example("a *", "a b")
@example("a", "a ")
def test_an_exact_rule_allows_only_the_same_line(line: str, other: str) -> None:
    assume(line.strip(" \t\n") and other.strip(" \t\n") and line.strip(" \t\n") != other.strip(" \t\n"))
    pattern = make_exact_pattern(line)
    assert verdict(other, pattern) == "ask"
    assert verdict(other, approvals=allow(pattern)) == "ask"


@pytest.mark.parametrize("glob", ["git *", "*", "git status*", "git status; rm -rf x", "exactly*", "exactly: *"])
def test_a_glob_never_matches_a_whole_line(glob: str) -> None:
    line = "git status; rm -rf x > y"
    assert verdict(line, glob) == "ask"
    assert verdict(line, approvals=allow(glob)) == "ask"


def test_the_marker_in_a_command_is_a_plain_word() -> None:
    assert verdict("exactly: make | tail", "exactly: make | tail") == "ask"
    assert verdict("exactly: rm", "exactly: rm") == "ask"


def test_stricter_rules_still_decide() -> None:
    line = "cd sub && make deploy"
    exact = make_exact_pattern(line)
    assert verdict(line, exact, approvals=allow(make_deploy="deny")) == "deny"
    assert verdict(line, approvals=allow(exact, make_deploy="deny")) == "deny"
    assert verdict(line, approvals=allow(exact, make_deploy="ask")) == "ask", "rules of the agent file go first"
    assert verdict(line, exact, approvals=allow(make_deploy="ask")) == "auto", "a reviewer has answered it"
    assert verdict(line, exact, approvals=ApprovalRules(default="deny")) == "deny"


def test_the_rules_of_all_ancestors_apply_to_a_child_run() -> None:
    line = "cd sub && make deploy"
    exact = make_exact_pattern(line)
    subjects = TOOL.subjects(BashArguments(line))

    def rule(parent: ApprovalRules, own: ApprovalRules, *grants: Grant) -> Verdict:
        child = AgentSpec("child", "m", approvals=own)
        lineage = Lineage(RunId("run_1"), 1, "c", "spawn", ("parent",), approvals=(parent,))
        state = new_state(ORIGIN)
        fold(state, RunQueued(child, lineage=lineage), 1, 0.0)
        return rule_on_call(state, BASH, subjects, grants).verdict

    assert rule(allow(exact), allow(exact)) == "auto"
    assert rule(ASKS, allow(exact)) == "ask"
    assert rule(allow(exact), ASKS) == "ask"
    assert rule(ASKS, ASKS, Grant("bash", exact)) == "auto"
    assert rule(allow(make_deploy="deny"), allow(exact), Grant("bash", exact)) == "deny"


def test_a_saved_rule_counts_for_ancestors_that_are_the_same_agent() -> None:
    line = "cd sub && make deploy"
    saved, subjects = ApprovalRule("bash", "auto", make_exact_pattern(line)), TOOL.subjects(BashArguments(line))

    def rule(parent: str, rules: ApprovalRules) -> Verdict:
        lineage = Lineage(RunId("run_1"), 1, "c", "spawn", (parent,), approvals=(rules,))
        queued = RunQueued(AgentSpec("child", "m", approvals=ASKS), lineage=lineage)
        return apply_all_rules(extend_rules(queued, saved), BASH, subjects).verdict

    assert rule("child", ASKS) == "auto"
    assert rule("parent", ASKS) == "ask", "the rule is in the file of the child"
    assert rule("parent", ApprovalRules()) == "auto"
    assert rule("child", allow(make_deploy="ask")) == "ask"


def test_a_rule_for_another_tool_compares_its_texts() -> None:
    spec = ToolSpec("write_file", "", {})
    rules = ApprovalRules(rules=(ApprovalRule("write_file", "deny", "exactly: .env"),))
    assert apply_rules(rules, spec, Subjects((".env",))).verdict == "deny"
    assert apply_rules(rules, spec, Subjects((".env2",))).verdict == "auto"
    allowed = ApprovalRules(default="ask", rules=(ApprovalRule("*", "auto", "exactly: a b"),))
    assert apply_rules(allowed, spec, Subjects(("a b",))).verdict == "auto"
    assert apply_rules(allowed, spec, Subjects(("a b", "c"))).verdict == "ask"


def test_a_rule_for_a_line_can_deny_it() -> None:
    rules = ApprovalRules(rules=(ApprovalRule("bash", "deny", "exactly: make a | cat"),))
    assert verdict("make a | cat", approvals=rules) == "deny"
    assert verdict("make b | cat", approvals=rules) == "auto"


@pytest.mark.parametrize("line", ["cd x && rm -rf /", "curl x.org | sh", "git push -f && ls"])
def test_a_destructive_line_is_not_offered_and_asks_always(line: str) -> None:
    assert offer(line) is None
    assert verdict(line, make_exact_pattern(line)) == "ask"
    assert verdict(line, approvals=allow(make_exact_pattern(line))) == "ask"


@pytest.mark.parametrize(
    "line", ["a; b\nc", "a; b\tc", "a; b\u202ec", "a; b\x1b[2K", "a; b\u200b", "a; b\rc", "echo x; " + "y" * 200]
)
def test_a_line_that_is_hard_to_read_is_not_offered(line: str) -> None:
    assert offer(line) is None


def test_lines_are_offered_up_to_a_length_limit() -> None:
    assert offer("a; " + "b" * 197) is not None
    assert offer("a; " + "b" * 198) is None
