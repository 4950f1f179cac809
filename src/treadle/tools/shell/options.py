"""What options and operands of a program do besides what the program is for. `program_risks.py`, `git_risks.py` and
`verb_risks.py` are the tables."""

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from treadle.domain.command_patterns import Risk

VerbKind = Risk | Literal["safe"]
_ALWAYS_SAFE = frozenset({"--help", "--version"})


class ProgramRisks(Struct, frozen=True):
    """The risks of a program, or of one of its verbs. Options are separated by spaces; long ones also match if they
    are abbreviated, as most programs accept them: `--to-com`."""

    escapes: Mapping[Risk, str] = {}
    """Options with which it can run other programs, or write where it otherwise would not. No pattern allows
    them."""
    risks: Mapping[Risk, str] = {}
    """Other options that do more than the program is for."""
    safe: str = ""
    """Options that are not a risk, although they may look like the beginning of one that is."""
    only_safe: bool = False
    """Options that are not in `safe` are not known."""
    valued: str = ""
    """Letters after which the rest of the word, or the next word, is a value."""
    long_valued: str = ""
    """Long options after which the next word is a value, where that matters."""
    bundled: bool = False
    """The first word contains letters without a dash, as in `tar xf`."""
    dashed: bool = False
    """Long options begin with one dash, as in `find -delete`."""
    escape_text: re.Pattern[str] | None = None
    """A pattern over all arguments with which it can run other programs or write files."""
    risk_texts: Mapping[Risk, re.Pattern[str]] = {}
    """Patterns over single words."""
    harmless: re.Pattern[str] | None = None
    """An option and its value, joined by a space, that are not a risk."""
    verbs: Mapping[VerbKind, str] = {}
    """What the first operand does. One that is not listed is not known."""
    operands: int | None = None
    """How many operands are not a risk; None: all of them."""
    operand_risk: Risk = "reads"
    """What operands beyond that number do."""
    marks_first: bool = False
    """Further operands make the first one a risk: `git config NAME VALUE` changes the setting."""
    runs_after: int | None = None
    """How many operands precede the name of a program that it runs."""


UNKNOWN_PROGRAM = ProgramRisks(
    only_safe=True, risk_texts={"unknown": re.compile(r"[@+].*|[A-Za-z_][\w.-]*\+?=.*", re.DOTALL)}
)


class OptionTable:
    """The options of one program or verb, ready to be looked up."""

    def __init__(self, declared: ProgramRisks) -> None:
        self.declared = declared
        self._escapes = _list_options(declared.escapes)
        self._risks = _list_options(declared.risks)
        self._safe = frozenset(declared.safe.split())
        self._long_valued = frozenset(declared.long_valued.split())
        self._verbs: dict[str, VerbKind] = {
            verb: kind for kind, verbs in declared.verbs.items() for verb in verbs.split()
        }

    @property
    def has_escapes(self) -> bool:
        return bool(self._escapes or self.declared.escape_text)

    @property
    def has_risky_options(self) -> bool:
        return bool(self._escapes or self._risks or self.declared.only_safe or self.declared.escape_text)

    def find_verb(self, word: str) -> VerbKind | None:
        return self._verbs.get(word)

    def escapes(self, arguments: tuple[str, ...]) -> bool:
        """Return whether arguments make the program run others, or write where it otherwise would not."""
        pattern = self.declared.escape_text
        if pattern is not None and pattern.search(f" {' '.join(arguments)}"):
            return True
        if self.declared.bundled and arguments and self._find(self._escapes, f"-{arguments[0].lstrip('-')}"):
            return True
        return any(self._find(self._escapes, word) is not None for word in arguments)

    def find_risk(self, word: str, following: str) -> Risk | None:
        """Return what an option does besides what the program is for. `following` is the next word."""
        name, equals, value = word.partition("=")
        if self._is_harmless(f"{name} {value}" if equals else f"{word} {following}"):
            return None
        found = self._find(self._escapes, word) or self._find(self._risks, word) or self.find_text_risk(word)
        if found is not None or not self.declared.only_safe:
            return found
        return None if self._is_safe(word) else "unknown"

    def find_text_risk(self, word: str) -> Risk | None:
        """Return what a word does by its text."""
        for risk, pattern in self.declared.risk_texts.items():
            if pattern.fullmatch(word):
                return risk
        pattern = self.declared.escape_text
        return "executes" if pattern is not None and pattern.search(f" {word}") else None

    def takes_value(self, word: str) -> bool:
        """Return whether the word after an option is its value."""
        if word.startswith("--") or self.declared.dashed:
            return word in self._long_valued
        letters = word[1:]
        return any(letter in self.declared.valued for letter in letters) and not any(
            letter in self.declared.valued for letter in letters[:-1]
        )

    def _is_harmless(self, pair: str) -> bool:
        return self.declared.harmless is not None and self.declared.harmless.fullmatch(pair) is not None

    def _find(self, options: Mapping[str, Risk], word: str) -> Risk | None:
        if not options or not word.startswith("-") or word in self._safe:
            return None
        name = word.partition("=")[0]
        if name in self._safe:
            return None
        if self.declared.dashed:
            return options.get(f"-{name.lstrip('-')}")
        if word.startswith("--"):
            if len(name) < 3:
                return None
            return next((risk for option, risk in options.items() if option.startswith(name)), None)
        for letter in word[1:]:
            if (risk := options.get(f"-{letter}")) is not None:
                return risk
            if letter in self.declared.valued:
                return None
        return None

    def _is_safe(self, word: str) -> bool:
        name = word.partition("=")[0]
        if word == "--" or name in self._safe or word in _ALWAYS_SAFE:
            return True
        if word.startswith("--") or self.declared.dashed:
            return False
        for letter in word[1:]:
            if f"-{letter}" not in self._safe:
                return False
            if letter in self.declared.valued:
                return True
        return True


def _list_options(declared: Mapping[Risk, str]) -> dict[str, Risk]:
    return {option: risk for risk, options in declared.items() for option in options.split()}
