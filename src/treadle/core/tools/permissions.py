"""Permissions: whether a call runs, needs an approval, or is refused, by the rules and the grants."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from treadle.core.state import RunState
from treadle.core.tools.modes import adjust_rules, find_plan_refusal
from treadle.domain.command_patterns import (
    RISK_PHRASES,
    CommandWords,
    covers,
    covers_any_options,
    find_uncovered,
)
from treadle.domain.events import RunQueued
from treadle.domain.permissions import ApprovalRule, ApprovalRules, Verdict, read_exact_pattern
from treadle.domain.tools import ToolSpec
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.ports.approvals import Grant
from treadle.ports.tool import Concern, Subjects

_STRICTNESS: dict[Verdict, int] = {"auto": 0, "ask": 1, "deny": 2}


class Ruling(Struct, frozen=True):
    verdict: Verdict
    reason: str = ""
    is_by_concern: bool = False
    """No rule asks: the concern about the call does, and the reason is that of the concern."""


PERMITTED = Ruling("auto")


def has_reviewer(state: RunState) -> bool:
    """Return whether anyone can decide an approval: the sender of the message, or an API client. A child run asks
    through its root."""
    return state.review.asker is not None or effective_rules(state)[0].via is not None


def effective_rules(state: RunState) -> tuple[ApprovalRules, ...]:
    """Return the rules that apply to a run: those of its ancestors, the root's first, and its own."""
    own = state.agent.approvals
    every = (own,) if state.lineage is None else (*state.lineage.approvals, own)
    return _select_rules(every, state.workspace)


def _select_rules(every: tuple[ApprovalRules, ...], workspace: WorkspaceId) -> tuple[ApprovalRules, ...]:
    """Return the rules without those that apply only in other workspaces."""
    if all(rule.workspace is None for rules in every for rule in rules.rules):
        return every
    here = (None, workspace)
    return tuple(
        [
            msgspec.structs.replace(rules, rules=tuple([rule for rule in rules.rules if rule.workspace in here]))
            for rules in every
        ]
    )


def extend_rules(queued: RunQueued, rule: ApprovalRule) -> tuple[ApprovalRules, ...]:
    """Return the rules that apply to a run, as if its agent had one more. An ancestor may be the same agent."""

    def extend(agent: str, rules: ApprovalRules) -> ApprovalRules:
        return msgspec.structs.replace(rules, rules=(*rules.rules, rule)) if agent == queued.agent.name else rules

    above, own = queued.lineage, extend(queued.agent.name, queued.agent.approvals)
    every = (own,) if above is None else (*map(extend, above.agents, above.approvals), own)
    return _select_rules(every, NO_WORKSPACE if queued.workspace is None else queued.workspace.id)


def permits_everything(state: RunState, spec: ToolSpec) -> bool:
    """Return whether neither the rules, nor the declaration of a tool, nor the mode ask or refuse. The tool may
    still be cautious itself."""
    if spec.needs_approval or state.review.mode not in (None, "auto"):
        return False
    return all(rules.default == "auto" and not rules.rules for rules in effective_rules(state))


def rule_on_call(state: RunState, spec: ToolSpec, subjects: Subjects, grants: Sequence[Grant] = ()) -> Ruling:
    """Return the strictest ruling on anything that the call would do, by all rules that apply, in the mode of the
    session."""
    mode = state.review.mode
    if (refusal := find_plan_refusal(mode, spec, subjects)) is not None:
        return Ruling("deny", refusal)
    rules = effective_rules(state)
    if mode is not None:
        rules = [adjust_rules(each, mode, state.agent, spec, subjects) for each in rules]
    return apply_all_rules(rules, spec, subjects, grants)


def apply_all_rules(
    approvals: Sequence[ApprovalRules], spec: ToolSpec, subjects: Subjects, grants: Sequence[Grant] = ()
) -> Ruling:
    """Return the strictest ruling of the rules of several agents on anything that the call would do."""
    rulings = [apply_rules(rules, spec, subjects, grants) for rules in approvals]
    return max(rulings, key=lambda ruling: _STRICTNESS[ruling.verdict])


def apply_rules(
    approvals: ApprovalRules, spec: ToolSpec, subjects: Subjects, grants: Sequence[Grant] = ()
) -> Ruling:
    """Return the strictest ruling of one agent's rules on anything that the call would do.

    A call that cannot be analysed is never permitted by a glob, and needs an approval if any rule might refuse it.
    A rule or grant for exactly its line permits it."""
    rules = _select_tool_rules(approvals.rules, spec.names)
    concern = subjects.concern
    grants = () if subjects.destructive is not None else grants
    rulings = (
        [Ruling("ask", concern.reason, is_by_concern=True)]
        if concern is not None and concern.overrides_rules
        else []
    )
    fallback = _make_default_ruling(approvals, spec, concern)
    for part in _list_parts(subjects):
        names = spec.names if part.acts_as is None else (spec.name, part.acts_as)
        applicable = rules if part.acts_as is None else _select_tool_rules(rules, names)
        rulings.append(_rule_on_part(fallback, applicable, names, part, grants))
    if subjects.caution is not None:
        rulings.append(Ruling("ask", subjects.caution))
    if subjects.opaque is not None and not _allows_opaque(rules, spec, subjects, grants):
        allows_all = any(rule.do == "auto" and rule.match is None for rule in rules)
        asks = fallback.verdict != "auto" and not (approvals.default == "auto" and allows_all)
        might_refuse = asks or any(rule.do != "auto" for rule in rules)
        rulings.append(Ruling("ask", subjects.opaque) if might_refuse else PERMITTED)
    return max(rulings, key=lambda ruling: _STRICTNESS[ruling.verdict])


def _select_tool_rules(rules: Sequence[ApprovalRule], names: Sequence[str]) -> list[ApprovalRule]:
    """Return the rules for a tool with these names."""
    return [rule for rule in rules if any(fnmatchcase(name, rule.tool) for name in names)]


def _allows_opaque(
    rules: Sequence[ApprovalRule], spec: ToolSpec, subjects: Subjects, grants: Sequence[Grant]
) -> bool:
    """Return whether a rule or grant allows a call that cannot be analysed."""
    patterns = _list_allowed(rules, spec, grants)
    if _allows_line(patterns, subjects) or _allows_paths(patterns, subjects):
        return True
    return subjects.only_by_options and all(
        any(_allows_any_options(rule, command) for rule in rules)
        for command in subjects.commands
        if command.escapes
    )


def _allows_any_options(rule: ApprovalRule, command: CommandWords) -> bool:
    return rule.options == "any" and rule.match is not None and covers_any_options(rule.match, command)


def _list_allowed(rules: Sequence[ApprovalRule], spec: ToolSpec, grants: Sequence[Grant]) -> list[str]:
    """Return the patterns of the rules and grants that allow calls of a tool."""
    patterns = [rule.match for rule in rules if rule.do == "auto" and rule.match is not None]
    return patterns + [grant.pattern for grant in grants if grant.tool in spec.names]


def _allows_line(patterns: Sequence[str], subjects: Subjects) -> bool:
    """Return whether a pattern names exactly the line of the call."""
    return subjects.whole is not None and any(read_exact_pattern(each) == subjects.whole for each in patterns)


def _allows_paths(patterns: Sequence[str], subjects: Subjects) -> bool:
    """Return whether the patterns allow each program that is named by a path, and name that path without a glob."""
    named = {pattern.partition(" ")[0] for pattern in patterns if read_exact_pattern(pattern) is None}
    return bool(subjects.only_by_path) and named.issuperset(subjects.only_by_path)


class _Part(Struct, frozen=True):
    """A part of a call that rules are compared with."""

    text: str
    whole: str | None
    """The whole command line of the call, if it has one."""
    command: CommandWords | None
    """The words of the part, if it is a command."""
    acts_as: str | None = None
    """The tool whose rules apply to it, in addition to those of its own."""
    is_removed: bool = False
    """It names a file that the call deletes."""


def _list_parts(subjects: Subjects) -> list[_Part]:
    commands: Sequence[CommandWords | None] = subjects.commands or (None,) * len(subjects.texts)
    acting: Sequence[str | None] = subjects.acts_as or (None,) * len(subjects.texts)
    parts = [
        _Part(text, subjects.whole, command, acts_as, text in subjects.removed)
        for text, command, acts_as in zip(subjects.texts, commands, acting, strict=True)
    ]
    return parts or [_Part("", subjects.whole, None)]


def _matches(pattern: str | None, part: _Part) -> bool:
    """Return whether a pattern matches a part of a call: by a glob for its text, or as exactly the whole line. A
    tool without command lines is compared by the part."""
    if pattern is None:
        return True
    line = read_exact_pattern(pattern)
    if line is not None:
        return line == (part.text if part.whole is None else part.whole)
    return fnmatchcase(part.text, pattern)


def _allows(pattern: str | None, part: _Part) -> bool:
    """Return whether a pattern that allows calls covers a part: a command word by word, others by their text."""
    if pattern is None or part.command is None or read_exact_pattern(pattern) is not None:
        return _matches(pattern, part)
    return covers(pattern, part.command)


def _applies(rule: ApprovalRule, part: _Part) -> bool:
    if rule.do != "auto":
        return _matches(rule.match, part)
    if part.is_removed and rule.match is not None:
        return False
    if rule.options == "any" and part.command is not None:
        return _allows_any_options(rule, part.command)
    return _allows(rule.match, part)


def check_examples(rule: ApprovalRule, get_subjects: Callable[[str], Subjects]) -> None:
    """Raise ValueError if a rule does not match its examples. `get_subjects` returns what a rule looks at."""
    for expected, examples in ((True, rule.examples.match), (False, rule.examples.no_match)):
        for example in examples:
            parts = _list_parts(get_subjects(example))
            if any(_applies(rule, part) for part in parts) is not expected:
                verb = "does not match" if expected else "matches"
                why = _explain_uncovered([rule], parts) if expected else ""
                raise ValueError(
                    f"the rule `{rule.match or '*'}` for `{rule.tool}` {verb} its example `{example}`{why}"
                )


def _explain_uncovered(rules: Sequence[ApprovalRule], parts: Sequence[_Part]) -> str:
    """Return which word of a command keeps a rule from allowing it, as the end of a sentence."""
    for part in parts:
        for rule in rules:
            if rule.do != "auto" or rule.match is None or part.command is None:
                continue
            found = find_uncovered(rule.match, part.command)
            if found is not None:
                does = RISK_PHRASES[found.risk]
                return f"; the rule for `{rule.match}` does not cover `{found.word}`, which {does}"
    return ""


def _make_default_ruling(approvals: ApprovalRules, spec: ToolSpec, concern: Concern | None) -> Ruling:
    """Return the ruling if no rule matches. A call that no sandbox confines is never permitted by default."""
    if concern is not None and concern.kind == "unconfined" and approvals.default == "auto":
        return Ruling("ask", concern.reason, is_by_concern=True)
    if spec.client is not None and approvals.default == "ask":
        return PERMITTED  # the client runs it, and asks its user if that is needed
    if spec.needs_approval and approvals.default == "auto":
        return Ruling("ask", f"`{spec.name}` needs an approval, as its code declares")
    return Ruling(approvals.default, f"`{spec.name}` is on {approvals.default} by default")


def _rule_on_part(
    fallback: Ruling, rules: Sequence[ApprovalRule], names: Sequence[str], part: _Part, grants: Sequence[Grant]
) -> Ruling:
    matching = [rule for rule in rules if _applies(rule, part)]
    ruling = _match_rules(fallback, matching)
    if ruling.verdict != "ask":
        return ruling
    if part.is_removed:
        return msgspec.structs.replace(ruling, reason=f"it deletes `{part.text}`; {ruling.reason}")
    if any(grant.tool in names and _allows(grant.pattern, part) for grant in grants):
        return PERMITTED
    if not matching and not ruling.is_by_concern:
        return msgspec.structs.replace(ruling, reason=ruling.reason + _explain_uncovered(rules, [part]))
    return ruling


def _match_rules(fallback: Ruling, matching: Sequence[ApprovalRule]) -> Ruling:
    """Return the ruling of the strictest rule that matches; without any, the fallback."""
    if not matching:
        return fallback
    strictest = max(matching, key=lambda rule: _STRICTNESS[rule.do])
    pattern = f" for `{strictest.match}`" if strictest.match is not None else ""
    return Ruling(strictest.do, f"the rule{pattern} of `{strictest.tool}` says {strictest.do}")
