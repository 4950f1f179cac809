"""Modes: how the mode of a session changes what the rules of an agent say about a call.

A mode lifts or adds questions. It never lifts a rule that denies, a protected file, a private place, a destructive
command or the caution of a tool: these are decided as without a mode."""

from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.domain.modes import ApprovalMode
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.domain.tools import COMMAND, PLAN_TOOL, ToolSpec
from treadle.ports.tool import Subjects

READING_TOOL = "read_file"
PLAN_REASON = "the agent asks you to approve its plan; approving ends plan mode"
PLAN_NOTE = (
    "(Plan mode is on: only read. Calls that change something are refused. When your plan is ready, show it with "
    "`update_plan` and `for_approval: true`; without that tool, answer with the plan.)"
)
PLAN_OVER_NOTE = "(Plan mode is off: you may change things now.)"


def adjust_rules(
    rules: ApprovalRules, mode: ApprovalMode | None, agent: AgentSpec, spec: ToolSpec, subjects: Subjects
) -> ApprovalRules:
    """Return the approval rules of an agent as the mode of the session changes them for one call."""
    if mode is None:
        return rules
    if _lifts_questions(mode, agent, spec, subjects):
        kept = tuple([rule for rule in rules.rules if rule.do != "ask"])
        return replace(rules, default="deny" if rules.default == "deny" else "auto", rules=kept)
    if mode == "plan":
        may_read = subjects.reads_only and _allows_reading(rules)
        return replace(rules, default="auto") if may_read and rules.default == "ask" else rules
    if rules.default == "auto" and spec.writes and spec.client is None and not subjects.reads_only:
        return replace(rules, default="ask")
    return rules


def find_plan_refusal(mode: ApprovalMode | None, spec: ToolSpec, subjects: Subjects) -> str | None:
    """Return why a call does not run in plan mode, or None. Child runs are begun: they are in plan mode too."""
    if mode != "plan" or not spec.writes or spec.delegates is not None or spec.forwards or subjects.reads_only:
        return None
    what = "the command may change something" if COMMAND in spec.names else f"`{spec.name}` may change something"
    return f"plan mode is on, and {what}"


def presents_plan(mode: ApprovalMode | None, spec: ToolSpec, arguments: object, *, is_child: bool) -> bool:
    """Return whether a call asks the user to approve a plan. A child run has no plan mode of its own to leave."""
    return (
        mode == "plan"
        and not is_child
        and spec.name == PLAN_TOOL
        and bool(getattr(arguments, "for_approval", False))
    )


def _lifts_questions(mode: ApprovalMode, agent: AgentSpec, spec: ToolSpec, subjects: Subjects) -> bool:
    if subjects.destructive is not None:
        return False
    if mode == "accept_edits":
        return _is_edit(spec) and not subjects.removed
    if mode != "auto":
        return False
    return not (COMMAND in spec.names and agent.confinement.mode == "off")


def _is_edit(spec: ToolSpec) -> bool:
    """Return whether a tool does nothing but change files of the workspace."""
    return spec.effect == "write" and "workspace" in spec.needs and bool(spec.paths or spec.patches)


def _allows_reading(rules: ApprovalRules) -> bool:
    """Return whether the rules let the agent read any file of the workspace without asking."""
    found: list[ApprovalRule] = [rule for rule in rules.rules if rule.tool == READING_TOOL]
    return any(rule.do == "auto" and rule.match is None for rule in found) and all(
        rule.do == "auto" for rule in found
    )
