"""Builtins that take the names of variables, or arithmetic, as words, and evaluate them."""

from treadle.tools.shell.evaluation import EVALUATED_NAME, VariableUse, is_number_word, is_plain_name
from treadle.tools.shell.words import Word

_DECLARE = frozenset({"declare", "typeset", "local", "export", "readonly"})
_NAME_FOLLOWS = {"test": ("-v", "-R"), "[": ("-v", "-R"), "wait": ("-p",), "printf": ("-v",)}


def find_evaluated_name(words: tuple[Word, ...]) -> str | None:
    """Return why a command may run something in the name of a variable, or None."""
    program, rest = words[0].text, words[1:]
    if program in _DECLARE:
        return _check_declaration(program, rest)
    if program in ("read", "unset", "mapfile", "readarray", "getopts"):
        names = [word for word in rest if not word.text.startswith("-")]
        return EVALUATED_NAME if any("[" in word.text and not is_plain_name(word) for word in names) else None
    takes_a_name = (program == "printf" and len(rest) > 1) or (program in ("test", "[") and len(rest) == 2)
    if rest and takes_a_name and may_be_an_option(rest[0]):
        return "an expansion may be an option, and what follows the name of a variable"
    for before, word in zip(words, rest, strict=False):
        if before.text in _NAME_FOLLOWS.get(program, ()) and not is_plain_name(word):
            return EVALUATED_NAME
    return EVALUATED_NAME if any("[" in word.text for word in rest if _is_attached(program, word)) else None


def may_be_an_option(word: Word) -> bool:
    """Return whether an expansion or a pattern can turn a word into an option: `$x`, or `*` where a file is called
    `-x`."""
    if word.dynamic:
        return word.text[:1] in ("$", "`")
    return word.is_glob and word.text[:1] in ("*", "?", "[")


def record_assignments(words: tuple[Word, ...], evaluation: VariableUse) -> str | None:
    """Record what a builtin assigns to variables and what it calculates. Return why the line is opaque, or
    None."""
    program, rest = words[0].text, words[1:]
    if program == "let":
        return next((why for word in rest if (why := evaluation.check_arithmetic(word.text)) is not None), None)
    if program in ("read", "mapfile", "readarray", "getopts", "printf", "wait"):
        for word in rest:
            evaluation.assign(word.text.removeprefix("-v").removeprefix("-p"), is_number=False)
    if program in _DECLARE:
        for word in rest:
            name, equals, value = word.text.partition("=")
            if equals:
                evaluation.assign(name.rstrip("+"), word.is_known and _is_numeric(value))
                evaluation.declare(name.rstrip("+"), from_text=not value.startswith("("))
    if program in ("env", "sudo", "doas"):
        for word in rest:
            name, equals, value = word.text.partition("=")
            if equals:
                evaluation.assign(name, word.is_known and _is_numeric(value))
    return None


def _is_attached(program: str, word: Word) -> bool:
    return program in ("printf", "wait") and word.text.startswith(("-v", "-p"))


def _is_numeric(value: str) -> bool:
    return is_number_word(Word(value)) or value.startswith("$((")


def _check_declaration(program: str, rest: tuple[Word, ...]) -> str | None:
    letters = {letter for word in rest if word.text[:1] in "-+" for letter in word.text[1:]}
    if (letters & {"i", "n"} and program != "export") or "f" in letters:
        return f"`{program}` with these options makes the shell evaluate what a variable holds"
    for word in rest:
        name, equals, value = word.text.partition("=")
        if "[" in name and not is_plain_name(Word(name.rstrip("+"), dynamic=word.dynamic)):
            return EVALUATED_NAME
        if not equals or word.text[:1] in "-+":
            continue
        quoted = value[:1] in "'\"$" or not word.bare.startswith(name)
        if (letters & {"a", "A"} or value.lstrip("'\"$").startswith("(")) and quoted and value:
            return "a text becomes the elements of an array, and is evaluated"
    return None
