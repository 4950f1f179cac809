"""What the rules of a careful user say about the commands of whole recorded sessions."""

from tests.tools.shell.recorded_commands import TOOL, judge, load
from treadle.core.tools.permissions import apply_rules
from treadle.domain.permissions import ApprovalRules
from treadle.ports.approvals import Grant
from treadle.tools.bash import BashArguments
from treadle.tools.shell.parser import parse_commands

RECORDING = load()


def test_only_the_listed_commands_need_an_approval_that_did_not_need_one() -> None:
    assert len(RECORDING.commands) >= 200
    for command in RECORDING.commands:
        assert judge(command.line, RECORDING.allow) == (command.now or command.before), command.line


def test_each_new_approval_names_its_risk() -> None:
    new = [command for command in RECORDING.commands if command.now is not None]
    assert 0 < len(new) < 15
    for command in new:
        assert (command.before, command.now) == ("auto", "ask"), "a rule never allows more than before"
        risks = {risk for call in parse_commands(command.line).calls for risk in call.risks}
        assert command.risk in risks, command.line


def test_a_grant_allows_the_command_that_it_was_offered_for() -> None:
    asks = ApprovalRules(default="ask")
    offered = 0
    for command in RECORDING.commands:
        subjects = TOOL.subjects(BashArguments(command.line))
        if subjects.pattern is not None:
            offered += 1
            grants = [Grant("bash", subjects.pattern)]
            assert apply_rules(asks, TOOL.spec, subjects, grants).verdict == "auto", command.line
    assert offered > 150
