"""Programs that are named by a path: each may be any program, so rules that refuse something ask about them."""

import pytest

from treadle.core.tools.permissions import apply_rules
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.domain.tools import ToolSpec
from treadle.ports.approvals import Grant
from treadle.ports.tool import Subjects
from treadle.tools.shell.glob_suggestion import suggest_pattern
from treadle.tools.shell.parser import parse_commands

BASH = ToolSpec(name="bash", description="", schema={}, effect="external")
DENIED = ApprovalRules(default="auto", rules=(ApprovalRule("bash", do="deny", match="rm *"),))
ASKS = ApprovalRules(
    default="ask",
    rules=(
        ApprovalRule("bash", do="auto", match="./build.sh *"),
        ApprovalRule("bash", do="auto", match="./*"),
        ApprovalRule("bash", do="auto", match="ls *"),
    ),
)
ELSEWHERE = (
    "/proc/self/root/bin/rm x", "cd /bin && ./rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "ld.so /bin/rm x",
    "/lib/ld-musl-x86_64.so.1 /bin/rm x", "cp /bin/rm y && ./y x", "ln -s /bin/rm y; ./y x", "../../bin/rm x",
    "/bin/../tmp/rm x", "env ./rm x", "timeout 5 ./rm x", "find . -exec ./y {} \\;", "bash -c './y x'",
    "PATH=. y x", "hash -p ./y ls; ls x", "enable -f ./y.so y; y", "alias ls=rm; ls x", "ls() { rm x; }; ls",
    "~/y x", "$PWD/y x", "cp /bin/rm /usr/local/bin/y; y x", "ln -s ../rm /usr/bin/y; y x", "busybox-static rm x",
    "dd if=/bin/rm of=/usr/local/bin/y; y x", "exec ./y x", "nohup ./y x", "setarch x86_64 rm x",
    "install /bin/rm -t /usr/local/bin; rm x", "command ./y x", "time ./y x", "y=./y; $y x", "sudo ./y x",
)  # fmt: skip


def verdict(approvals: ApprovalRules, line: str, grants: tuple[Grant, ...] = ()) -> str:
    parsed = parse_commands(line)
    subjects = Subjects(parsed.commands, parsed.opaque, None, None, parsed.only_by_path)
    return apply_rules(approvals, BASH, subjects, grants).verdict


@pytest.mark.parametrize("line", ELSEWHERE)
def test_another_path_to_a_program_is_not_allowed_automatically(line: str) -> None:
    assert verdict(DENIED, line) != "auto"
    assert verdict(ASKS, line) != "auto"


@pytest.mark.parametrize("line", ["/bin/rm x", "/usr/bin/rm x", "/usr//bin/./rm x", "/bin/../bin/rm x"])
def test_programs_in_standard_folders_are_recognised(line: str) -> None:
    assert verdict(DENIED, line) == "deny"


@pytest.mark.parametrize("line", ["/bin/ls x", "/usr/local/bin/ls x", "ls /proc/self/root/bin/rm"])
def test_programs_of_the_standard_folders_go_by_their_name(line: str) -> None:
    assert verdict(ASKS, line) == "auto"


def test_a_rule_that_names_the_path_without_a_glob_allows_it() -> None:
    assert verdict(ASKS, "./build.sh all") == "auto"
    assert verdict(ASKS, "./build.sh all && ./other x") == "ask"
    assert verdict(ASKS, "./build.sh $(./rm x)") == "ask"
    assert verdict(ASKS, "./build.sh all > x") == "ask"


def test_no_approval_is_needed_without_restrictive_rules() -> None:
    assert verdict(ApprovalRules(default="auto"), "./build.sh all") == "auto"


def test_a_reviewer_can_allow_a_path_permanently() -> None:
    pattern = suggest_pattern(parse_commands("./other.sh x"))
    assert pattern == "./other.sh x"
    only_asks = ApprovalRules(default="ask")
    assert verdict(only_asks, "./other.sh x", (Grant("bash", pattern),)) == "auto"
    assert verdict(only_asks, "./other.sh y", (Grant("bash", pattern),)) == "ask"
