"""Finds every simple command in a shell line, wherever it is, and why the line may do more than that."""

import posixpath
import re
from collections.abc import Callable, Mapping
from functools import cache

import tree_sitter_bash
from msgspec.structs import replace
from tree_sitter import Language, Node, Parser

from treadle.tools.shell import git
from treadle.tools.shell.escapes import find_escape, find_option_escape
from treadle.tools.shell.evaluation import VariableUse
from treadle.tools.shell.program_risks import READ_ONLY_PROGRAMS
from treadle.tools.shell.risks import find_risks
from treadle.tools.shell.simple_commands import CommandContext, ParsedLine, SimpleCommand, Unwrapped
from treadle.tools.shell.variable_builtins import find_evaluated_name, record_assignments
from treadle.tools.shell.variables import explain_untrusted, find_assigned, is_trusted_variable
from treadle.tools.shell.words import Word, make_literal, read_word
from treadle.tools.shell.wrappers import unwrap

MAX_DEPTH = 60
"""Commands nested more deeply are not examined."""
MAX_CALLS = 500
MAX_BYTES = 128 * 1024
"""Linux accepts no longer argument, so no shell could be given a longer line."""
MAX_NAME_BYTES = 256
MAX_SYNTAX_CHARACTERS = 1000
"""Characters with a meaning in the shell. On hostile lines the grammar takes time that grows with the square of
their number, and it cannot be stopped. A count, unlike a time, gives the same result on a busy machine."""
_STANDARD_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"})
_LOOKING = READ_ONLY_PROGRAMS | {"sed", "gsed", "awk", "gawk", "mawk", "find", "[", "xargs"}
SYNTAX_CHARACTERS = b"`$(){}[]<>|&;!"
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Characters that do something other than they show."""
_JOINED_LINES = re.compile(r"[^ \t\n]\\\n[^ \t\n]")
"""A word that continues on the next line. The grammar reads it as two words."""
_NOT_A_PROGRAM = re.compile(
    r"[-+=].*|[0-9]+|.*\{\}.*|[!{}]|\[\[|\]\]|(?:if|then|elif|else|fi|for|in|do|done|while|until|case|esac|select|function)",
    re.DOTALL,
)
"""Text in the position of a program when the grammar has misread a line."""
_HARMLESS_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_CLOSES = frozenset({">&-", "<&-"})
_TRANSPARENT = frozenset(
    {
        "program", "list", "compound_statement", "subshell", "do_group", "if_statement", "elif_clause",
        "else_clause", "while_statement", "case_statement", "case_item", "c_style_for_statement", "negated_command",
        "command_substitution", "process_substitution", "string", "concatenation", "arithmetic_expansion",
        "test_command", "unary_expression", "binary_expression", "ternary_expression", "postfix_expression",
        "parenthesized_expression", "variable_assignments", "array", "subscript", "heredoc_body",
        "herestring_redirect", "translated_string", "command_name", "brace_expression", "extglob_pattern", "regex",
        "word",
    }
)  # fmt: skip
_LEAVES = frozenset(
    {
        "comment", "raw_string", "ansi_c_string", "number", "variable_name", "special_variable_name",
        "string_content", "file_descriptor", "test_operator", "heredoc_start", "heredoc_end", "heredoc_content",
        "simple_expansion",
    }
)  # fmt: skip


_SUBSTITUTION = re.compile(rb"(?<!\\)(?:\\\\)*(`|\$\()")
_SUBSTITUTION_IN_WORD = re.compile(rb"(?<!\\)(?:\\\\)*(`|\$\(|[<>]\()")
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_DESCRIPTOR_VARIABLE = re.compile(rb"\{([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\}$")
_LITERAL = frozenset({"raw_string", "ansi_c_string", "comment", "heredoc_start", "heredoc_end"})


def parse_commands(line: str) -> ParsedLine:
    """Return the commands of a line. Never raises: a line that is not understood is opaque."""
    reader = _LineReader()
    try:
        reader.read(line, CommandContext())
    except RecursionError:
        reader.note("the line is nested too deep to be understood")
    reader.note(reader.evaluation.find_untrusted())
    reader.note(git.find_line_escape(reader.calls, _LOOKING))
    calls = tuple(reader.calls)
    if reader.opaque is not None:
        return ParsedLine(calls, reader.opaque)
    if reader.option_escape is not None:
        return ParsedLine(calls, reader.option_escape, only_by_options=not reader.paths)
    if reader.paths:
        return ParsedLine(calls, f"`{reader.paths[0]}` is named by its path", tuple(reader.paths))
    return ParsedLine(calls)


@cache
def _grammar() -> Language:
    return Language(tree_sitter_bash.language())


def parse_syntax(source: bytes) -> Node:
    """Return the root of the line's syntax tree. A line longer than `MAX_BYTES`, or with more than
    `MAX_SYNTAX_CHARACTERS`, may take very long."""
    return Parser(_grammar()).parse(source).root_node


class _LineReader:
    def __init__(self) -> None:
        self.calls: list[SimpleCommand] = []
        self.opaque: str | None = None
        self.option_escape: str | None = None
        """Why options of a command may run other programs or write files."""
        self.paths: list[str] = []
        """Programs named by a path outside the standard folders: each may be any program."""
        self.evaluation = VariableUse()
        self._syntax_left = MAX_SYNTAX_CHARACTERS
        self._visitors: Mapping[str, Callable[[Node, CommandContext], None]] = {
            "command": self._command,
            "pipeline": self._pipeline,
            "redirected_statement": self._redirection,
            "file_redirect": self._redirect_file,
            "heredoc_redirect": self._heredoc,
            "declaration_command": self._declaration,
            "unset_command": self._declaration,
            "variable_assignment": self._assignment,
            "for_statement": self._for,
            "expansion": self._expansion,
            "function_definition": self._function,
        }

    def note(self, why: str | None) -> None:
        """Record a reason. Only the first one is kept."""
        self.opaque = self.opaque or why

    def read(self, text: str, context: CommandContext) -> None:
        if _INVISIBLE.search(text):
            self.note("the line holds characters that are not seen")
        if _JOINED_LINES.search(text):
            self.note("a word goes on in the next line")
        if context.depth > MAX_DEPTH or len(self.calls) > MAX_CALLS:
            self.note("the line is nested too deep to be understood")
            return
        source = text.encode("utf-8", "surrogatepass")
        self._syntax_left -= len(source) - len(source.translate(None, SYNTAX_CHARACTERS))
        if len(source) > MAX_BYTES or self._syntax_left < 0:
            self.note("the line takes too long to be understood")
            return
        root = parse_syntax(source)
        if root.has_error or root.start_byte > _leading_blanks(source) or _has_unfinished_heredoc(root):
            self.note("the shell's syntax is not understood")
        self._visit(root, context)

    def _visit(self, node: Node, context: CommandContext) -> None:
        if len(self.calls) > MAX_CALLS:
            self.note("the line has more commands than anybody would read")
            return
        if node.type not in _LITERAL and _hides_a_command(node):
            self.note("a substitution stands where it is not understood")
        self.note(self.evaluation.inspect(node))
        if node.type in _REDIRECTS and (variable := _find_descriptor_variable(node)) is not None:
            self._check_variable(variable)
        if _is_translated(node):
            self.note("a text is translated")
        if not node.is_named or node.type in _LEAVES:
            return
        visit = self._visitors.get(node.type)
        if visit is not None:
            visit(node, context)
            return
        if node.type not in _TRANSPARENT:
            self.note(f"`{node.type}` is not understood")
        self._children(node, context)

    def _children(self, node: Node, context: CommandContext) -> None:
        for child in node.children:
            self._visit(child, context)

    # ── Between commands ──

    def _pipeline(self, node: Node, context: CommandContext) -> None:
        stages = [child for child in node.children if child.is_named]
        before: tuple[str, ...] = context.fed_by
        for index, stage in enumerate(stages):
            known = len(self.calls)
            piped = CommandContext(context.fed or index > 0, before, context.within, context.depth)
            self._visit(stage, piped)
            before += tuple(call.program for call in self.calls[known:])

    def _redirection(self, node: Node, context: CommandContext) -> None:
        fed = context.fed or any(_is_input_redirect(child) for child in node.children)
        within = CommandContext(fed, context.fed_by, context.within, context.depth)
        self._children(node, within)

    def _function(self, node: Node, context: CommandContext) -> None:
        self.note("a function is defined, and its name may stand for a program")
        self._children(node, context)

    def _heredoc(self, node: Node, context: CommandContext) -> None:
        """Visit a here-document and the rest of its first line."""
        context = CommandContext(True, context.fed_by, context.within, context.depth)
        start = next((child.text or b"" for child in node.children if child.type == "heredoc_start"), b"")
        is_literal = start[:1] in (b"'", b'"', b"\\")
        for child in node.children:
            if not (is_literal and child.type == "heredoc_body"):
                self._visit(child, context)

    def _redirect_file(self, node: Node, context: CommandContext) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        targets = [read_word(target) for target in node.children_by_field_name("destination")]
        for target in targets:
            if operator in _WRITES and not _is_harmless(target, operator):
                self.note(f"it writes to a file, `{target.text}`")
            if target.text.startswith(("/dev/tcp/", "/dev/udp/")):
                self.note("it opens a connection")
        if len(targets) > 1 or (not targets and operator not in _CLOSES):
            self.note("a redirection is not understood")  # words of the command may follow it
        self._children(node, context)

    def _assignment(self, node: Node, context: CommandContext) -> None:
        name = node.child_by_field_name("name")
        if name is not None and name.type == "subscript":
            name = name.child_by_field_name("name")
        before_a_command = node.parent is not None and node.parent.type == "command"
        self._check_variable(read_word(name).text if name is not None else "", before_a_command)
        self._children(node, context)

    def _check_variable(self, name: str, exported: bool = False) -> None:
        if not name or not is_trusted_variable(name, exported):
            self.note(explain_untrusted(name))

    def _for(self, node: Node, context: CommandContext) -> None:
        variable = node.child_by_field_name("variable")
        self._check_variable(read_word(variable).text if variable is not None else "")
        self._children(node, context)

    def _expansion(self, node: Node, context: CommandContext) -> None:
        operators = {child.type for child in node.children if not child.is_named}
        variable = next((read_word(child).text for child in node.children if child.type == "variable_name"), "")
        if operators & {":=", "="}:
            self._check_variable(variable)
        if any(operator.startswith("@") for operator in operators):
            self.note("an expansion is evaluated again")
        self._children(node, context)

    # ── Commands ──

    def _command(self, node: Node, context: CommandContext) -> None:
        name = node.child_by_field_name("name")
        arguments = node.children_by_field_name("argument")
        words = [read_word(child) for child in arguments if not _is_descriptor(child)]
        fed = context.fed or any(_is_input_redirect(child) for child in node.children)
        self._children(node, context)
        if name is None:
            self.note("a command has no name")
            return
        self.add((read_word(name), *words), CommandContext(fed, context.fed_by, context.within, context.depth))

    def _declaration(self, node: Node, context: CommandContext) -> None:
        keyword = next((child.type for child in node.children if not child.is_named), "")
        words = [read_word(child) for child in node.children if child.is_named]
        self._children(node, context)
        self.add((make_literal(keyword), *words), context)

    def add(self, words: tuple[Word, ...], context: CommandContext) -> None:
        """Add a command, and all commands that it runs in turn."""
        if _is_nonstandard_path(words[0].text):
            self.paths.append(words[0].text)
        words = (_strip_standard_folder(words[0]), *words[1:])
        program = words[0]
        if _NOT_A_PROGRAM.fullmatch(program.text):
            self.note(f"`{program.text}` stands where a program should")
        if program.text == "exec" and context.fed:
            self.note("`exec` changes what later commands read")
        if not program.is_known or not program.text or _INVISIBLE.search(program.text) or "\n" in program.text:
            self.note("the name of a command comes from an expansion or a pattern")
        if any(word.is_brace for word in words):
            self.note("braces become several words")
        for variable in find_assigned(words):
            if variable.dynamic:
                self.note(f"`{program.text}` sets a variable whose name comes from an expansion")
            self._check_variable(re.split(r"[+=\[]", variable.text)[0] or "-", _exports(words))
        self.note(find_evaluated_name(words) or record_assignments(words, self.evaluation))
        unwrapped = unwrap(words)
        self.note(unwrapped.opaque)
        call = SimpleCommand(tuple(word.text for word in words), context.fed, context.fed_by, context.within)
        self.note(find_escape(call, words))
        escape = find_option_escape(call)
        self.option_escape = self.option_escape or escape
        if unwrapped.keep or not unwrapped.inner:
            risks = find_risks(words, escapes=escape is not None)
            self.calls.append(replace(call, risks=risks, escapes=escape is not None))
        self._add_inner(unwrapped, program.text, context)

    def _add_inner(self, unwrapped: Unwrapped, program: str, context: CommandContext) -> None:
        deeper = context.inside(program)
        for inner in unwrapped.inner:
            if inner.text is not None:
                self.read(inner.text, deeper)
            elif deeper.depth > MAX_DEPTH:
                self.note("the line is nested too deep to be understood")
            elif inner.words:
                self.add(inner.words, deeper)


def _leading_blanks(source: bytes) -> int:
    return len(source) - len(source.lstrip())


def _has_unfinished_heredoc(root: Node) -> bool:
    """Return whether a here-document never ends. The shell would read the rest of the line as its text."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "heredoc_redirect" and not _is_ended(node):
            return True
        pending += node.children
    return False


def _is_ended(text: Node) -> bool:
    parts = {child.type: (child.text or b"").strip() for child in text.children}
    start, end = parts.get("heredoc_start", b""), parts.get("heredoc_end", b"")
    return bool(end) and end == re.sub(rb"['\"\\]", b"", start)


def _hides_a_command(node: Node) -> bool:
    """Return whether the text of a node contains a substitution that the grammar did not find."""
    found = _SUBSTITUTION_IN_WORD if node.type in ("word", "regex", "extglob_pattern") else _SUBSTITUTION
    text, begin = node.text or b"", node.start_byte
    if not node.is_named or found.search(text) is None:
        return False
    at, own = 0, bytearray()
    for child in node.children:
        own += text[at : child.start_byte - begin] + b" "
        at = child.end_byte - begin
    return found.search(bytes(own + text[at:])) is not None


def _find_descriptor_variable(node: Node) -> str | None:
    """Return the variable that a redirection such as `{name}<file` sets, or None."""
    own, parent = node.text or b"", node.parent
    head = own[: re.search(rb"[<>&]|$", own).start()]  # pyright: ignore[reportOptionalMemberAccess] -- `$` matches
    if parent is not None:
        offset = node.start_byte - parent.start_byte
        head = (parent.text or b"")[max(0, offset - MAX_NAME_BYTES) : offset] + head
    found = _DESCRIPTOR_VARIABLE.search(head)
    return None if found is None else found[1].decode()


def _is_translated(node: Node) -> bool:
    """Return whether this is the `$` of `$"text"`, which the grammar does not always join with the string."""
    if node.end_byte - node.start_byte != 1 or node.text != b"$":
        return False
    following = node.next_sibling
    return following is not None and following.type == "string" and following.start_byte == node.end_byte


def _is_input_redirect(node: Node) -> bool:
    """Return whether a redirection gives a command something to read."""
    if node.type == "file_redirect":
        return any(child.type in ("<", "<&", "<>") for child in node.children)
    return node.type in ("heredoc_redirect", "herestring_redirect")


def _exports(words: tuple[Word, ...]) -> bool:
    return words[0].text == "export" or any(word.text.startswith("-") and "x" in word.text for word in words)


def _is_descriptor(argument: Node) -> bool:
    """Return whether a number is the descriptor of a redirection, as in `bash 0<x`. The grammar reads it as a
    word."""
    if not (argument.text or b"").isdigit():
        return False
    node: Node | None = argument
    following = None
    while node is not None and following is None:
        following, node = node.next_sibling, node.parent
    return (
        following is not None and following.type.endswith("_redirect") and following.start_byte == argument.end_byte
    )


def _is_harmless(target: Word, operator: str) -> bool:
    if operator == ">&" and target.text.isdigit():
        return True
    return target.is_known and target.text in _HARMLESS_FILES


def _is_nonstandard_path(program: str) -> bool:
    """Return whether a program is named by a path that may lead out of the standard folders."""
    if "/" not in program:
        return False
    folder, _ = posixpath.split(program)
    return ".." in program.split("/") or posixpath.normpath(folder).replace("//", "/") not in _STANDARD_FOLDERS


def _strip_standard_folder(word: Word) -> Word:
    """Return a program of the system by its name alone, however its path is written."""
    if word.is_known and word.text.startswith("/"):
        folder, name = posixpath.split(posixpath.normpath(word.text))
        if folder.replace("//", "/") in _STANDARD_FOLDERS and name:
            return make_literal(name)
    return word
