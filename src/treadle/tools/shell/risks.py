"""Finds the words of a command that a final ` *` of an allow rule does not cover, by the tables of programs."""

from functools import cache

from treadle.domain.command_patterns import Risk
from treadle.tools.shell import sed
from treadle.tools.shell.git_risks import GIT_RISKS
from treadle.tools.shell.options import UNKNOWN_PROGRAM, OptionTable, ProgramRisks
from treadle.tools.shell.program_risks import PROGRAM_RISKS, WITHOUT_RISKS, canonical_name
from treadle.tools.shell.variable_builtins import may_be_an_option
from treadle.tools.shell.verb_risks import VERB_RISKS
from treadle.tools.shell.words import Word
from treadle.tools.shell.wrappers import SHELLS, WRAPPERS

_INTERPRETERS = SHELLS | {"python", "node", "ruby", "perl", "php", "lua", "Rscript", "deno", "bun", "source", "."}
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_NO_RISKS = ProgramRisks()


def find_risks(words: tuple[Word, ...], *, escapes: bool) -> tuple[Risk | None, ...]:
    """Return, for each word of a command, why a final ` *` of an allow rule does not cover it. `escapes`: its
    options can run other programs or write files."""
    risks = _find_risks(words)
    if escapes and not any(risks):
        return (None, *("executes" for _ in words[1:]))
    return tuple(risks)


@cache
def find_table(name: str) -> OptionTable:
    """Return the options of a program, or of a verb as `program verb`; those of an unknown program if it is not
    listed."""
    return OptionTable(_find_declared(name) or UNKNOWN_PROGRAM)


def is_listed(name: str) -> bool:
    return _find_declared(name) is not None


def _find_declared(name: str) -> ProgramRisks | None:
    for table in (PROGRAM_RISKS, GIT_RISKS, VERB_RISKS):
        if (found := table.get(name)) is not None:
            return found
    return _NO_RISKS if name in WITHOUT_RISKS else None


def _find_risks(words: tuple[Word, ...]) -> list[Risk | None]:
    name = canonical_name(words[0].text)
    if name == "sed":
        is_plain = sed.only_prints(tuple(word.text for word in words[1:]))
        risks: list[Risk | None] = [None]
        return risks * len(words) if is_plain else [*risks, *("writes" for _ in words[1:])]
    if name in WRAPPERS and name not in ("sudo", "doas", "ssh", "strace", "watch"):
        return [None] * len(words)  # the command that it runs is compared itself
    scan = _WordScan(name)
    risks = [None]
    for index in range(1, len(words)):
        if scan.runs_program(words[index]):
            inner = _find_risks(words[index:])
            return [*risks, "executes", *inner[1:]]
        following = words[index + 1].text if index + 1 < len(words) else ""
        risk = scan.read(words[index], following)
        if scan.first_operand is None and scan.operands == 1:
            scan.first_operand = index
        if risk is not None and scan.marks_first and scan.first_operand is not None and scan.operands > 1:
            risks[scan.first_operand], risk = risk, None
        risks.append(risk)
    return risks


class _WordScan:
    """Reads the words of a command from the first to the last."""

    def __init__(self, name: str) -> None:
        self._path = name
        self._table = find_table(name)
        self._shared: OptionTable | None = None
        """The options that the program has with every verb."""
        self._expects_verb = bool(self._table.declared.verbs)
        self.operands = 0
        self.first_operand: int | None = None
        """The place of the first operand, after the verbs."""
        self._value_follows = False
        self._options_ended = False
        self._is_inner = False
        """Words belong to a command that the program runs, and that is compared itself."""
        self._module_follows = False

    def runs_program(self, word: Word) -> bool:
        """Return whether a word names the program that the command runs."""
        if self._module_follows:
            return True
        count = self._table.declared.runs_after
        is_operand = not word.text.startswith("-") and not self._value_follows and not self._expects_verb
        return count is not None and is_operand and self.operands == count

    def read(self, word: Word, following: str) -> Risk | None:
        """Return the risk of the next word."""
        text = word.text
        if self._is_inner:
            self._is_inner = text not in (";", "+")
            return None
        if self._path == "find" and text in _FIND_RUNS:
            self._is_inner = True
            return "executes"
        if self._value_follows and not text.startswith("-"):
            self._value_follows = False
            return self._table.find_text_risk(text) if text.startswith("@") else None
        self._value_follows = False
        if text.startswith("-") and len(text) > 1:
            return self._read_option(text, following)
        if not self._options_ended and may_be_an_option(word) and self._has_risky_options:
            self.operands += 1
            return "unknown"
        return self._read_operand(text)

    @property
    def marks_first(self) -> bool:
        return self._table.declared.marks_first

    @property
    def _has_risky_options(self) -> bool:
        return self._table.has_risky_options or (self._shared is not None and self._shared.has_risky_options)

    def _read_option(self, text: str, following: str) -> Risk | None:
        self._options_ended = self._options_ended or text == "--"
        if self._path == "python" and text == "-m":
            self._module_follows = True
            return "executes"
        self._value_follows = self._table.takes_value(text)
        shared = None if self._shared is None else self._shared.find_risk(text, following)
        if self._shared is not None and self._shared.declared.only_safe:
            shared = None
        return shared or self._table.find_risk(text, following)

    def _read_operand(self, text: str) -> Risk | None:
        if self._expects_verb:
            return self._read_verb(text)
        self.operands += 1
        limit = self._table.declared.operands
        if limit is not None and self.operands > limit:
            return self._table.declared.operand_risk
        if self._path in _INTERPRETERS:
            if text == "-":
                return "executes"
            self._path, self._table = "", find_table("")  # what follows belongs to the script
            return None
        return self._table.find_text_risk(text)

    def _read_verb(self, verb: str) -> Risk | None:
        kind = self._table.find_verb(verb)
        parent, self._path = self._table, f"{self._path} {verb}"
        self.operands = 0
        if is_listed(self._path):
            self._table, self._shared = find_table(self._path), parent
            self._expects_verb = bool(self._table.declared.verbs)
        else:
            self._expects_verb = False
            if kind != "safe":
                self._table = find_table("")
        return "unknown" if kind is None else None if kind == "safe" else kind
