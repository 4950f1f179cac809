"""Tracks texts that bash evaluates a second time and that may then contain commands: arithmetic, subscripts,
names.

In arithmetic a variable stands for its text, and that text is arithmetic again: `n='a[$(rm x)]'; echo $((n))` runs
`rm`. A variable is therefore trusted there only if the line assigns nothing but numbers to it."""

import re
from collections.abc import Iterator

from tree_sitter import Node

from treadle.tools.shell.variables import explain_untrusted, is_trusted_variable
from treadle.tools.shell.words import Word, read_word

_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9A-Fa-f]+|[0-9]+#[0-9A-Za-z]+|[0-9]+)?")
_RANGE = re.compile(r"\{-?[0-9]+\.\.-?[0-9]+(?:\.\.-?[0-9]+)?\}|\$\(seq(?: -?[0-9]+)+\)")
_COUNT = re.compile(r"\$\{#[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?\}|\$[#?$!]|\$\{[#?$!]\}")
"""Expansions that are always numbers."""
_NAME_IN_ARITHMETIC = re.compile(r"\$\{([A-Za-z_]\w*)\}|\$?\b([A-Za-z_]\w*)", re.ASCII)
_LITERAL_NUMBER = re.compile(r"\b(?:0[xX][0-9A-Fa-f]+|[0-9]+#[0-9A-Za-z]+|[0-9]+)\b")
_OPERATORS = re.compile(r"[-+*/%<>=!&|^~?:,;()\[\]\s]*")
_PUT_BY_ARITHMETIC = re.compile(
    r"\b([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)",
    re.ASCII,
)
_ALWAYS_NUMBERS = frozenset(
    {
        "BASHPID", "COLUMNS", "EPOCHSECONDS", "EUID", "LINENO", "LINES", "PPID", "RANDOM", "SECONDS", "SHLVL",
        "SRANDOM", "UID",
    }
)  # fmt: skip
_COMPARES_NUMBERS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[(?:[0-9]+|[@*])\])?")
_KEYS_OR_NAMES = re.compile(r"\$\{![A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\]|[@*])\}")
_ELEMENT = re.compile(r"\[([^\]]*)\]\+?=", re.DOTALL)
_RUNS = re.compile(rb"\$\(|`")

REEVALUATED_TEXT = "arithmetic evaluates a text that is not in the line"
EVALUATED_NAME = "the name of a variable is evaluated, and may hold a command"


class VariableUse:
    """What one line assigns to variables, and which of them it evaluates."""

    def __init__(self) -> None:
        self._only_numbers: dict[str, bool] = {}
        self._used: set[str] = set()
        self._arrays: set[str] = set()
        self._from_texts: set[str] = set()

    def find_untrusted(self) -> str | None:
        """Return why the line evaluates a variable that may contain anything, or None. Call it at the end of the
        line."""
        if self._arrays & self._from_texts:
            return "a text becomes the elements of an array, and is evaluated"
        unknown = sorted(name for name in self._used - _ALWAYS_NUMBERS if not self._only_numbers.get(name, False))
        return f"{REEVALUATED_TEXT}: that of `{unknown[0]}`" if unknown else None

    def assign(self, name: str, is_number: bool) -> None:
        self._only_numbers[name] = self._only_numbers.get(name, True) and is_number

    def declare(self, name: str, from_text: bool) -> None:
        """Record that a builtin sets a variable, and whether its value comes from an expansion."""
        if from_text:
            self._from_texts.add(name)

    def inspect(self, node: Node) -> str | None:
        """Record a node. Return why the line cannot be understood, or None."""
        match node.type:
            case "compound_statement" if _text(node).startswith("(("):
                return self.check_arithmetic(_text(node)[2:-2])
            case "arithmetic_expansion":
                text = _text(node)
                return self.check_arithmetic(text[3:-2] if text.startswith("$((") else text[2:-1])
            case "c_style_for_statement":
                return self._loop(node)
            case "expansion":
                return self._expansion(node)
            case "subscript":
                index = _text(node).partition("[")[2][:-1]
                return None if index in ("@", "*") else self.check_arithmetic(index)
            case "array":
                return self._array(node)
            case "test_command":
                return self._test(node)
            case "variable_assignment":
                self._assignment(node)
            case "for_statement":
                self._for(node)
            case "command_substitution" if _text(node).startswith("$(("):
                return self.check_arithmetic(_text(node)[3:-2])
            case "command_substitution" if _text(node).startswith("`") and "\\" in _text(node):
                return "backquotes stand within backquotes"
            case _:
                pass
        return None

    def check_arithmetic(self, text: str) -> str | None:
        """Record an expression. Its variables are checked at the end of the line, except those that change what
        programs do: arithmetic can set any variable that it names."""
        text = _COUNT.sub(" 1 ", text.replace('"', ""))
        put = {found[1] or found[2] for found in _PUT_BY_ARITHMETIC.finditer(text)}
        for name in put:
            self.assign(name, is_number=True)
        text = _LITERAL_NUMBER.sub(" ", text).replace("$((", "((")
        names = {found[1] or found[2] for found in _NAME_IN_ARITHMETIC.finditer(text)}
        self._used |= names
        for name in sorted(put | (names - _ALWAYS_NUMBERS)):
            if not is_trusted_variable(name):
                return explain_untrusted(name)
        return None if _OPERATORS.fullmatch(_NAME_IN_ARITHMETIC.sub(" ", text)) else REEVALUATED_TEXT

    # ── Nodes ──

    def _loop(self, node: Node) -> str | None:
        body = node.child_by_field_name("body")
        end = body.start_byte - node.start_byte if body else None
        header = (node.text or b"")[:end].decode("utf-8", "replace")
        return self.check_arithmetic(header.partition("((")[2].rpartition("))")[0])

    def _expansion(self, node: Node) -> str | None:
        text = _text(node)
        if text.startswith("${!") and not _KEYS_OR_NAMES.fullmatch(text):
            return EVALUATED_NAME
        if any(_RUNS.search(part.text or b"") for part in _find_nodes(node, "raw_string", "ansi_c_string")):
            return "quotes within an expansion may not quote"
        colon = next((child for child in node.children if child.type == ":"), None)
        if colon is None:
            return None
        return self.check_arithmetic(
            (node.text or b"")[colon.end_byte - node.start_byte : -1].decode("utf-8", "replace")
        )

    def _array(self, node: Node) -> str | None:
        for child in node.children:
            text = _text(child)
            if text.startswith("["):
                found = _ELEMENT.match(text)
                why = REEVALUATED_TEXT if found is None else self.check_arithmetic(found[1])
                if why is not None:
                    return why
        return None

    def _test(self, node: Node) -> str | None:
        evaluates = _text(node).startswith("[[")
        for part in _find_nodes(node, "binary_expression", "unary_expression"):
            operator = part.child_by_field_name("operator")
            sign = _text(operator) if operator is not None else ""
            operands = [child for child in part.children if child.is_named and child.type != "test_operator"]
            if sign in ("-v", "-R") and not all(is_plain_name(read_word(operand)) for operand in operands):
                return EVALUATED_NAME
            if evaluates and sign in _COMPARES_NUMBERS:
                for operand in operands:
                    if why := self.check_arithmetic(_text(operand)):
                        return why
        return None

    def _assignment(self, node: Node) -> None:
        if node.parent is not None and node.parent.type == "c_style_for_statement":
            return
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None:
            plain, subscript, _ = _text(name).partition("[")
            self.assign(plain, value is None or _is_number(value))
            if subscript or (value is not None and value.type == "array"):
                self._arrays.add(plain)

    def _for(self, node: Node) -> None:
        variable = node.child_by_field_name("variable")
        values = node.children_by_field_name("value")
        numbers = bool(values) and all(_is_number(value) for value in values)
        self.assign(_text(variable) if variable is not None else "", numbers)


def is_plain_name(word: Word) -> bool:
    """Return whether a word names a variable, or an element by its number, and nothing in it is evaluated."""
    return not word.dynamic and _PLAIN_NAME.fullmatch(word.text) is not None


def is_number_word(word: Word) -> bool:
    return not word.dynamic and _NUMBER.fullmatch(word.text) is not None


def _is_number(value: Node) -> bool:
    if value.type == "array":
        return all(_is_number(child) for child in value.children if child.is_named)
    if value.type == "arithmetic_expansion":
        return True
    text = _text(value)
    if _COUNT.fullmatch(text.strip('"')) or _RANGE.fullmatch(text.strip('"')):
        return True
    return is_number_word(read_word(value))


def _find_nodes(node: Node, *kinds: str) -> Iterator[Node]:
    pending = list(node.children)
    while pending:
        found = pending.pop()
        if found.type in kinds:
            yield found
        if found.type not in ("command_substitution", "process_substitution"):
            pending += found.children


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
