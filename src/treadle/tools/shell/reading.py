"""Decides whether a command line only reads: it changes no file, sends nothing and starts no other program."""

from treadle.tools.shell.git import READING_VERBS, split_verb
from treadle.tools.shell.program_risks import READ_ONLY_PROGRAMS
from treadle.tools.shell.simple_commands import ParsedLine, SimpleCommand

_READING_PROGRAMS = READ_ONLY_PROGRAMS - {"mkdir", "touch"} | {"find", "sed", "gsed", "[", "zcat", "zgrep", "nproc"}
"""Programs that change nothing with options that are no risk."""
_HARMLESS_RISKS = (None, "reads")


def only_reads(line: ParsedLine) -> bool:
    """Return whether every command of a line only reads. A line that is not understood may do anything."""
    return line.opaque is None and bool(line.calls) and all(_only_reads(call) for call in line.calls)


def _only_reads(call: SimpleCommand) -> bool:
    if call.escapes or any(risk not in _HARMLESS_RISKS for risk in call.risks):
        return False
    if call.program != "git":
        return call.program in _READING_PROGRAMS
    verb, words = split_verb(call.arguments)
    operands = [word for word in words if not word.startswith("-")]
    return verb in READING_VERBS - {"reflog"} or (verb == "reflog" and operands[:1] in ([], ["show"]))
