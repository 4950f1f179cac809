"""Modes: what a session's mode changes about a call, decided by one pure function for every kind of call."""

import pytest
from msgspec.structs import replace

from treadle.core.state import RunState, new_state
from treadle.core.tools.permissions import permits_everything, rule_on_call
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.modes import MODE_CYCLE, ApprovalMode, is_wider, next_mode
from treadle.domain.permissions import ApprovalRule, ApprovalRules, SandboxMode
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Concern, Subjects
from treadle.tools.bash import find_command_subjects, make_command_spec

BASH = make_command_spec()
READ = ToolSpec("read_file", "", {}, effect="read", paths=("path",), needs=("workspace",))
EDIT = ToolSpec("edit_file", "", {}, effect="write", paths=("path",), needs=("workspace",))
NOTE = ToolSpec("memory_save", "", {}, effect="write", needs=("memory",))
POST = ToolSpec("post", "", {}, effect="external", needs_approval=True)
CLIENT = ToolSpec("client__draw", "", {}, client="draw")
READING = (ApprovalRule("read_file", "auto"),)
CAREFUL = ApprovalRules(default="ask", rules=READING)
STRICT = ApprovalRules(default="ask", rules=(*READING, ApprovalRule("bash", "deny", "git push *")))
ASKING = ApprovalRules(rules=(ApprovalRule("edit_file", "ask"),))
EXECUTED = Concern("executed", "executed later: .envrc", ("/w/.envrc",))
UNCONFINED = Concern("unconfined", "no sandbox: bubblewrap is missing")


def path(name: str, concern: Concern | None = None, *, removed: bool = False) -> Subjects:
    return Subjects((name,), pattern=name, concern=concern, removed=(name,) if removed else ())


def command(line: str, concern: Concern | None = None) -> Subjects:
    return replace(find_command_subjects(line), concern=concern)


def in_mode(mode: ApprovalMode | None, approvals: ApprovalRules, sandbox: SandboxMode = "auto") -> RunState:
    state = new_state(Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1")))
    state.agent = AgentSpec("hero", "x", approvals=approvals, sandbox=sandbox)
    state.review.mode = mode
    return state


# The verdicts without a mode and in the modes plan, ask, accept_edits and auto.
CASES: tuple[tuple[str, ApprovalRules, ToolSpec, Subjects, str], ...] = (
    ("a file is read", CAREFUL, READ, path("a"), "auto auto auto auto auto"),
    ("a file is edited", CAREFUL, EDIT, path("a"), "ask deny ask auto auto"),
    ("a file is edited freely", ApprovalRules(), EDIT, path("a"), "auto deny ask auto auto"),
    ("a protected file is edited", CAREFUL, EDIT, path(".envrc", EXECUTED), "ask deny ask ask ask"),
    ("a protected file is edited freely", ApprovalRules(), EDIT, path(".envrc", EXECUTED), "ask deny ask ask ask"),
    ("a patch deletes a file", CAREFUL, EDIT, path("a", removed=True), "ask deny ask ask auto"),
    ("a memory is saved", CAREFUL, NOTE, path("a"), "ask deny ask ask auto"),
    ("a command reads", CAREFUL, BASH, command("git log -3 | head"), "ask auto ask ask auto"),
    ("a command reads freely", ApprovalRules(), BASH, command("ls"), "auto auto auto auto auto"),
    (
        "a command reads, and no rule allows reading",
        ApprovalRules("ask"),
        BASH,
        command("ls"),
        "ask ask ask ask auto",
    ),
    ("a command changes something", CAREFUL, BASH, command("make"), "ask deny ask ask auto"),
    ("a command changes something freely", ApprovalRules(), BASH, command("make"), "auto deny ask ask auto"),
    ("no sandbox confines a command", CAREFUL, BASH, command("make", UNCONFINED), "ask deny ask ask ask"),
    ("no sandbox confines reading", CAREFUL, BASH, command("ls", UNCONFINED), "ask ask ask ask ask"),
    ("a command is denied", STRICT, BASH, command("git push origin"), "deny deny deny deny deny"),
    ("a command may be one that is denied", STRICT, BASH, command("$X push origin"), "ask deny ask ask ask"),
    ("a command destroys", CAREFUL, BASH, command("git reset --hard"), "ask deny ask ask ask"),
    ("everything is denied", ApprovalRules(default="deny"), EDIT, path("a"), "deny deny deny deny deny"),
    (
        "a rule asks",
        ApprovalRules(rules=(ApprovalRule("edit_file", "ask"),)),
        EDIT,
        path("a"),
        "ask deny ask auto auto",
    ),
    ("a tool needs an approval", ApprovalRules(), POST, path("a"), "ask deny ask ask ask"),
    ("the client runs it", CAREFUL, CLIENT, path("a"), "auto deny auto auto auto"),
)


@pytest.mark.parametrize(
    ("what", "approvals", "spec", "subjects", "verdicts"), CASES, ids=[each[0] for each in CASES]
)
def test_a_mode_decides(
    what: str, approvals: ApprovalRules, spec: ToolSpec, subjects: Subjects, verdicts: str
) -> None:
    modes: tuple[ApprovalMode | None, ...] = (None, "plan", "ask", "accept_edits", "auto")
    found = [rule_on_call(in_mode(mode, approvals), spec, subjects).verdict for mode in modes]
    assert " ".join(found) == verdicts
    for mode, verdict in zip(modes, found, strict=True):
        is_cautious = subjects.caution is not None or subjects.concern is not None
        if permits_everything(in_mode(mode, approvals), spec) and not is_cautious:
            assert verdict == "auto", "a shortcut must not allow more"


def test_auto_lifts_no_question_about_commands_that_no_sandbox_may_confine() -> None:
    state = in_mode("auto", CAREFUL, sandbox="off")
    assert rule_on_call(state, BASH, command("make")).verdict == "ask"
    assert rule_on_call(state, EDIT, path("a")).verdict == "auto"


@pytest.mark.parametrize(
    ("mode", "than", "expected"),
    [
        ("plan", "ask", False),
        ("ask", "plan", True),
        ("accept_edits", "ask", True),
        ("auto", "accept_edits", True),
        ("auto", "auto", False),
        (None, "auto", True),
        ("ask", None, False),
        ("accept_edits", None, True),
    ],
)
def test_modes_are_compared_by_what_they_allow(
    mode: ApprovalMode | None, than: ApprovalMode | None, expected: bool
) -> None:
    assert is_wider(mode, than) is expected


def test_the_key_goes_through_all_modes() -> None:
    mode: ApprovalMode | None = None
    seen: list[ApprovalMode] = []
    for _ in MODE_CYCLE:
        mode = next_mode(mode)
        seen.append(mode)
    assert seen == ["accept_edits", "plan", "auto", "ask"]
    assert next_mode("plan", can_be_auto=False) == "ask"
    assert next_mode("auto", can_be_auto=False) == "ask"


READS: tuple[str, ...] = (
    "ls -la", "cat a b | head -3", "git status", "git -C sub log --oneline", "rg foo src", "find . -name '*.py'",
    "sed -n 1,20p a", "wc -l < a", "echo $HOME", "timeout 5 ls", "ls 2>/dev/null", "cd src && ls", "git reflog",
)  # fmt: skip
CHANGES: tuple[str, ...] = (
    "ls > out", "git commit -m x", "git reflog expire --all", "sed -i s/a/b/ a", "find . -delete", "rm a",
    "touch a", "mkdir a", "cat a | tee b", "sort -o a b", "python -c 1", "ls && make", "xargs rm < a",
    "git -c core.pager=x log",
    "curl https://x", "echo a >> b", "$X", "sudo ls", "find . -exec rm {} +", "ls; $(cat a)", "git branch -D x",
    "sed -n 'w out' a", "git diff --output=x", "awk '{print > \"x\"}' a", "date -s tomorrow",
)  # fmt: skip


@pytest.mark.parametrize("line", READS)
def test_a_command_that_only_reads_is_known(line: str) -> None:
    assert find_command_subjects(line).reads_only


@pytest.mark.parametrize("line", CHANGES)
def test_a_command_that_may_change_something_is_not_taken_for_one_that_reads(line: str) -> None:
    assert not find_command_subjects(line).reads_only
