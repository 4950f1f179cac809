"""What the rules of a careful user say about the commands of whole recorded sessions."""

from tests.tools.shell.recorded_commands import judge, load


def test_rules_say_the_same_as_before() -> None:
    recording = load()
    assert len(recording.commands) >= 200
    for command in recording.commands:
        assert judge(command.line, recording.allow) == (command.now or command.before), command.line
