"""Commands of recorded coding sessions, and what the rules of a careful user say about each.

`recorded_commands.yaml` was written before an allow rule was compared with parsed words: `before` is what the rules
said then. Run this module to print what they say now:

    python -m tests.tools.shell.recorded_commands
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.core.tools.permissions import apply_rules
from treadle.domain.command_patterns import Risk
from treadle.domain.permissions import ApprovalRule, ApprovalRules, Verdict
from treadle.sandbox.commands import ShellCommands
from treadle.tools.bash import Bash, BashArguments

FILE = Path(__file__).with_suffix(".yaml")
TOOL = Bash(ShellCommands())


class RecordedCommand(Struct, frozen=True, forbid_unknown_fields=True):
    line: str
    before: Verdict
    now: Verdict | None = None
    """What the rules say now, if it is not the same."""
    risk: Risk | None = None
    """Why it needs an approval now."""


class RecordedSession(Struct, frozen=True, forbid_unknown_fields=True):
    repository: str
    path: str
    part: str
    commands: tuple[RecordedCommand, ...]


class Recording(Struct, frozen=True, forbid_unknown_fields=True):
    allow: tuple[str, ...]
    """The patterns of the rules that allow commands."""
    sessions: tuple[RecordedSession, ...]

    @property
    def commands(self) -> list[RecordedCommand]:
        return [command for session in self.sessions for command in session.commands]


def load() -> Recording:
    return msgspec.yaml.decode(FILE.read_bytes(), type=Recording)


def judge(line: str, allow: tuple[str, ...]) -> Verdict:
    """Return what the rules say about a line, where everything that they do not allow needs an approval."""
    rules = ApprovalRules(default="ask", rules=tuple(ApprovalRule("bash", "auto", pattern) for pattern in allow))
    return apply_rules(rules, TOOL.spec, TOOL.subjects(BashArguments(line))).verdict


if __name__ == "__main__":
    recording = load()
    for command in recording.commands:
        print(judge(command.line, recording.allow), command.line.splitlines()[0][:150])
