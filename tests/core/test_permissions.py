"""Approval rules: the strictest matching rule decides, and an opaque command never passes without approval."""

import pytest

from treadle.core.tools.permissions import apply_rules
from treadle.domain.permissions import ApprovalRule, ApprovalRules, Verdict
from treadle.domain.tools import ToolSpec
from treadle.ports.approvals import Grant
from treadle.ports.tool import Subjects


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, "", {})


ASK = ApprovalRules(default="ask", rules=(ApprovalRule("read_*", "auto"), ApprovalRule("bash", "auto", "git *")))
GIT = ApprovalRules(
    default="ask",
    rules=(
        ApprovalRule("bash", "ask", "git push *"),
        ApprovalRule("bash", "auto", "git *"),
        ApprovalRule("bash", "deny", "git push --force*"),
    ),
)
OPEN = ApprovalRules(rules=(ApprovalRule("bash", "ask", "rm *"), ApprovalRule("drop_*", "deny")))


@pytest.mark.parametrize(
    ("approvals", "tool", "texts", "verdict"),
    [
        (ApprovalRules(), "anything", ("x",), "auto"),
        (ApprovalRules(default="deny"), "anything", (), "deny"),
        (ASK, "read_file", ("a",), "auto"),
        (ASK, "write_file", ("a",), "ask"),
        (ASK, "bash", ("git status",), "auto"),
        (ASK, "bash", ("git status", "rm x"), "ask"),
        (ASK, "bash", ("gitx",), "ask"),
        (GIT, "bash", ("git push origin",), "ask"),
        (GIT, "bash", ("git push --force origin",), "deny"),
        (GIT, "bash", ("git log",), "auto"),
        (OPEN, "bash", ("ls", "rm x"), "ask"),
        (OPEN, "bash", ("ls",), "auto"),
        (OPEN, "drop_table", (), "deny"),
    ],
)
def test_the_strictest_rule_decides(
    approvals: ApprovalRules, tool: str, texts: tuple[str, ...], verdict: Verdict
) -> None:
    assert apply_rules(approvals, spec(tool), Subjects(texts)).verdict == verdict


def test_a_tool_that_needs_an_approval_asks_unless_a_rule_or_a_grant_allows_it() -> None:
    careful = ToolSpec("post", "", {}, needs_approval=True)

    def rule(approvals: ApprovalRules, *grants: Grant) -> Verdict:
        return apply_rules(approvals, careful, Subjects(("x",), pattern="*"), grants).verdict

    assert rule(ApprovalRules()) == "ask"
    assert rule(ApprovalRules(rules=(ApprovalRule("post", "auto"),))) == "auto"
    assert rule(ApprovalRules(), Grant("post", "*")) == "auto"
    assert rule(ApprovalRules(default="deny")) == "deny"


def test_a_ruling_names_its_rule() -> None:
    ruling = apply_rules(GIT, spec("bash"), Subjects(("git push origin",)))
    assert ruling.reason == "the rule for `git push *` of `bash` says ask"
    assert apply_rules(ASK, spec("post"), Subjects(())).reason == "`post` is on ask by default"


@pytest.mark.parametrize(
    ("approvals", "verdict"), [(ApprovalRules(), "auto"), (OPEN, "ask"), (GIT, "ask"), (ASK, "ask")]
)
def test_an_opaque_command_needs_approval_if_any_rule_might_refuse_it(
    approvals: ApprovalRules, verdict: Verdict
) -> None:
    subjects = Subjects(("git log",), opaque="the command is made when it runs")
    assert apply_rules(approvals, spec("bash"), subjects).verdict == verdict


def test_a_call_that_a_tool_warns_about_needs_approval_despite_the_rules() -> None:
    allowed = ApprovalRules(rules=(ApprovalRule("bash", "auto"),))
    ruling = apply_rules(allowed, spec("bash"), Subjects(("rm -rf /",), caution="it removes everything"))
    assert (ruling.verdict, ruling.reason) == ("ask", "it removes everything")


def test_a_grant_covers_exactly_the_pending_approval() -> None:
    grants = (Grant("bash", "git push *"),)
    assert apply_rules(GIT, spec("bash"), Subjects(("git push origin",)), grants).verdict == "auto"
    assert (
        apply_rules(GIT, spec("bash"), Subjects(("git push --force x",)), (Grant("bash", "*"),)).verdict == "deny"
    )
    assert apply_rules(GIT, spec("bash"), Subjects(("git push origin", "rm x")), grants).verdict == "ask"
    assert apply_rules(GIT, spec("other"), Subjects(("git push origin",)), grants).verdict == "ask"
    opaque = Subjects(("git push origin",), opaque="an expansion")
    assert apply_rules(GIT, spec("bash"), opaque, grants).verdict == "ask"


def test_a_rule_for_a_tool_applies_to_its_other_names() -> None:
    alias = ToolSpec("run_command", "", {}, aliases=("bash",))
    assert apply_rules(OPEN, alias, Subjects(("rm x",))).verdict == "ask"
    assert apply_rules(GIT, alias, Subjects(("git push x",)), (Grant("bash", "git push *"),)).verdict == "auto"
