"""Rules about commands. Each carries its own examples, which are checked when the table is loaded."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from treadle.tools.shell.parser import parse_commands
from treadle.tools.shell.program_risks import canonical_name
from treadle.tools.shell.simple_commands import ParsedLine, SimpleCommand


def match_always(call: SimpleCommand) -> bool:
    return True


class CommandRule(Struct, frozen=True):
    programs: tuple[str, ...]
    says: str
    """What the command is, and what to use instead, for the model or the reviewer."""
    match: tuple[str, ...]
    no_match: tuple[str, ...]
    when: Callable[[SimpleCommand], bool] = match_always

    def applies(self, call: SimpleCommand) -> bool:
        name = call.program
        return (name in self.programs or canonical_name(name) in self.programs) and self.when(call)


class RuleTable:
    """Rules in the order in which they are checked."""

    def __init__(self, rules: Sequence[CommandRule]) -> None:
        """Raise ValueError if a rule contradicts its examples."""
        self._by_program: dict[str, list[CommandRule]] = {}
        for rule in rules:
            for name in dict.fromkeys(map(canonical_name, rule.programs)):
                self._by_program.setdefault(name, []).append(rule)
            for line in rule.match:
                if not any(rule.applies(call) for call in parse_commands(line).calls):
                    raise ValueError(f"the rule for {', '.join(rule.programs)} does not match its example {line!r}")
            for line in rule.no_match:
                if any(rule.applies(call) for call in parse_commands(line).calls):
                    raise ValueError(f"the rule for {', '.join(rule.programs)} matches {line!r}, which it must not")

    def find_first(self, parsed: ParsedLine) -> tuple[SimpleCommand, CommandRule] | None:
        """Return the first command that a rule applies to, with that rule, or None."""
        for call in parsed.calls:
            for rule in self._by_program.get(canonical_name(call.program), ()):
                if rule.applies(call):
                    return call, rule
        return None
