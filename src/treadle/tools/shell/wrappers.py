"""Programs that run their arguments: `sudo`, `env`, `xargs`, `find -exec`, `bash -c`, ... and what they run."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from treadle.tools.shell.program_risks import canonical_name
from treadle.tools.shell.simple_commands import InnerCommand, Unwrapped
from treadle.tools.shell.variables import is_trusted_variable
from treadle.tools.shell.words import Word, make_literal

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "fish", "rbash", "mksh"})


class CommandWrapper(Struct, frozen=True):
    """Where a program's own options end and the command that it runs starts."""

    flags: str = ""
    """Letters of options without a value."""
    valued: str = ""
    """Letters of options with a value, in the same word or the next."""
    long_flags: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    operands: int = 0
    """How many words of its own precede the command."""
    keep: bool = False
    """It lends rights or does more than run the command."""
    joins: bool = False
    """It joins its words with spaces and passes them to a shell."""
    why: str | None = None
    """Why what it runs cannot be known from the line."""

    def count_words(self, word: str) -> int | None:
        """Return how many words an option takes, or None for an unknown one."""
        if word.startswith("--"):
            name, equals, _ = word.partition("=")
            if name in self.long_valued:
                return 1 if equals else 2
            return 1 if name in self.long_flags else None
        for index, letter in enumerate(word[1:], 1):
            if letter in self.valued:
                return 2 if index == len(word) - 1 else 1
            if letter not in self.flags:
                return None
        return 1


WRAPPERS: Mapping[str, CommandWrapper] = {
    "env": CommandWrapper(
        "i0v",
        "uC",
        ("--ignore-environment", "--null", "--debug", "--block-signal", "--default-signal", "--ignore-signal",
         "--list-signal-handling"),
        ("--unset", "--chdir"),
    ),
    "sudo": CommandWrapper(
        "AbBEHiKknPSs",
        "ughpCDRTUrt",
        ("--non-interactive", "--preserve-env", "--set-home", "--stdin", "--background", "--askpass", "--login",
         "--shell", "--reset-timestamp"),
        ("--user", "--group", "--host", "--prompt", "--close-from", "--chdir", "--chroot", "--command-timeout"),
        keep=True,
    ),
    "doas": CommandWrapper("nL", "uC", keep=True),
    "nice": CommandWrapper("0123456789", "n", (), ("--adjustment",)),
    "ionice": CommandWrapper("t", "cn", ("--ignore",), ("--class", "--classdata")),
    "chrt": CommandWrapper("obfridavR", "TPD", ("--other", "--batch", "--fifo", "--rr", "--idle"), operands=1),
    "taskset": CommandWrapper("ac", "", ("--cpu-list", "--all-tasks"), operands=1),
    "nohup": CommandWrapper(),
    "setsid": CommandWrapper("cfw", "", ("--ctty", "--fork", "--wait")),
    "timeout": CommandWrapper(
        "v", "ks", ("--foreground", "--preserve-status", "--verbose"), ("--kill-after", "--signal"), operands=1
    ),
    "time": CommandWrapper("pvq", "f", ("--portability", "--verbose", "--quiet"), ("--format",)),
    "stdbuf": CommandWrapper("", "ioe", (), ("--input", "--output", "--error")),
    "command": CommandWrapper("p"),
    "builtin": CommandWrapper(),
    "exec": CommandWrapper("cl", "a"),
    "coproc": CommandWrapper(why="`coproc` may give its command a name, and goes on in the background"),
    "busybox": CommandWrapper(),
    "toybox": CommandWrapper(),
    "fakeroot": CommandWrapper("uvh"),
    "unbuffer": CommandWrapper("p"),
    "chronic": CommandWrapper("ve"),
    "strace": CommandWrapper("fFcCdDiknqrtTvVwxyzZ", "oespPuEaIOSbX", keep=True),
    "chroot": CommandWrapper("", "", ("--skip-chdir",), ("--groups", "--userspec"), operands=1, keep=True),
    "xargs": CommandWrapper(
        "0rtpxoile",
        "InPLsdEa",
        ("--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--replace", "--max-lines"),
        ("--max-args", "--max-procs", "--delimiter", "--arg-file", "--max-chars"),
        keep=True,
        why="`xargs` adds words to a command that no reviewer has seen",
    ),
    "parallel": CommandWrapper(
        "kv0q",
        "jnNS",
        ("--keep-order", "--dry-run", "--null"),
        ("--jobs",),
        keep=True,
        why="`parallel` adds words to a command that no reviewer has seen",
    ),
    "watch": CommandWrapper(
        "bcdegtxpwC",
        "nqs",
        ("--beep", "--color", "--differences", "--errexit", "--chgexit", "--no-title", "--exec", "--precise"),
        ("--interval",),
        keep=True,
        joins=True,
    ),
    "ssh": CommandWrapper(
        "46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOoPpQRSWw", operands=1, keep=True, joins=True
    ),
}  # fmt: skip


def unwrap(words: tuple[Word, ...]) -> Unwrapped:
    """Return what a command runs besides itself."""
    program = canonical_name(words[0].text)
    if program != words[0].text:
        words = (make_literal(program), *words[1:])
    if program in SHELLS:
        return _unwrap_shell(words)
    if (special := _SPECIAL_CASES.get(program)) is not None:
        return special(words)
    wrapper = WRAPPERS.get(program)
    return Unwrapped() if wrapper is None else _unwrap_wrapper(words, wrapper)


def _unwrap_wrapper(words: tuple[Word, ...], wrapper: CommandWrapper) -> Unwrapped:
    program, rest = words[0].text, list(words[1:])
    operands, options = wrapper.operands, True
    while rest:
        word = rest[0]
        if not word.is_known:
            return Unwrapped(opaque=f"what `{program}` runs comes from an expansion")
        if options and word.text == "--":
            rest.pop(0)
            options = False
        elif options and word.text.startswith("-") and (len(word.text) > 1 or program == "env"):
            word_count = wrapper.count_words(word.text)
            if word_count is None:
                return Unwrapped(opaque=f"the option `{word.text}` of `{program}` is not known")
            del rest[:word_count]
        elif program in ("env", "sudo", "doas") and "=" in word.text:
            if not is_trusted_variable(word.text.partition("=")[0], exported=True):
                return Unwrapped(opaque=f"`{word.text.partition('=')[0]}` changes what other programs do")
            rest.pop(0)
        elif operands:
            operands -= 1
            rest.pop(0)
        else:
            break
    if not rest:
        return Unwrapped(opaque=wrapper.why)
    if wrapper.joins:
        return _unwrap_text(rest, program, keep=wrapper.keep)
    return Unwrapped((InnerCommand(tuple(rest)),), wrapper.keep, wrapper.why)


def _unwrap_text(words: list[Word], program: str, keep: bool) -> Unwrapped:
    """Unwrap words that are passed to a shell as one text."""
    if any(word.dynamic for word in words):
        return Unwrapped(opaque=f"the text that `{program}` runs comes from an expansion")
    return Unwrapped((InnerCommand(text=" ".join(word.text for word in words)),), keep)


# ── Special cases ──


def shell_operands(arguments: Sequence[str]) -> list[str]:
    """Return the operands of a shell, or nothing if it reads its commands from standard input."""
    _, reads, rest = _split_shell_options([make_literal(word) for word in arguments])
    return [] if reads else [word.text for word in rest]


def _split_shell_options(rest: list[Word]) -> tuple[bool, bool, list[Word]]:
    """Return whether a shell takes a text, whether it reads its commands, and its operands."""
    takes_text = reads = False
    while rest and rest[0].text[:1] in ("-", "+"):
        option = rest.pop(0).text
        if option in ("-", "--"):
            break
        if option.startswith("--"):
            continue
        takes_text = takes_text or (option.startswith("-") and "c" in option)
        reads = reads or (option.startswith("-") and "s" in option)
        del rest[: option.count("o") + option.count("O")]
    return takes_text, reads and not takes_text, rest


def _unwrap_shell(words: tuple[Word, ...]) -> Unwrapped:
    program = words[0].text
    takes_text, _, rest = _split_shell_options(list(words[1:]))
    for word in words[1:]:
        if not word.is_known and not (takes_text and rest and word in rest[1:]):
            return Unwrapped(opaque=f"what `{program}` runs comes from an expansion")
        if word.text.startswith(("--rc", "--init", "--command")) or (program == "fish" and "C" in word.text):
            return Unwrapped(opaque=f"`{program} {word.text}` runs a file or a text first")
    if takes_text:
        return Unwrapped((InnerCommand(text=rest[0].text),), keep=False) if rest else Unwrapped()
    return Unwrapped()


def _unwrap_env(words: tuple[Word, ...]) -> Unwrapped:
    """Unwrap `env -S 'text'`, which splits a text into the words of a command."""
    for index, word in enumerate(words[1:], 1):
        short = word.text.startswith("-") and not word.text.startswith("--")
        if short and "S" in word.text:
            text = [word.after(word.text.index("S") + 1), *words[index + 1 :]]
        elif word.text.startswith("--split-string"):
            text = [word.after(len("--split-string=")), *words[index + 1 :]]
        elif "=" in word.text or (word.text.startswith("-") and WRAPPERS["env"].count_words(word.text) == 1):
            continue
        else:
            break
        if any(piece.dynamic or "\\" in piece.text or "$" in piece.text for piece in text):
            return Unwrapped(opaque="the text that `env -S` splits is not plain")
        joined = " ".join(piece.text for piece in text if piece.text)
        return Unwrapped((InnerCommand(text=f"env {joined}"),), keep=False)
    return _unwrap_wrapper(words, WRAPPERS["env"])


def _unwrap_command(words: tuple[Word, ...]) -> Unwrapped:
    """Unwrap `command`. `command -v NAME` only prints where a program is."""
    for word in words[1:]:
        if not word.text.startswith("-") or word.text == "--":
            break
        if set(word.text[1:]) & {"v", "V"}:
            return Unwrapped()
    return _unwrap_wrapper(words, WRAPPERS["command"])


def _unwrap_eval(words: tuple[Word, ...]) -> Unwrapped:
    rest = list(words[2:] if len(words) > 1 and words[1].text == "--" else words[1:])
    return _unwrap_text(rest, "eval", keep=False) if rest else Unwrapped()


def _unwrap_find(words: tuple[Word, ...]) -> Unwrapped:
    inner: list[InnerCommand] = []
    command: list[Word] | None = None
    if any(word.splits for word in words):
        return Unwrapped(opaque="what `find` does comes from an expansion")
    for before, word in pairwise(words):
        if command is None:
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                command = []
            elif word.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
                return Unwrapped(opaque=f"`find {word.text}` writes to a file")
        elif word.text == ";" or (word.text == "+" and before.text == "{}"):
            if _puts_names_into_a_text(command):
                return Unwrapped(opaque="`find` puts the names of files into a text that is run")
            if command:
                inner.append(InnerCommand(tuple(command)))
            command = None
        else:
            command.append(word)
    return Unwrapped(tuple(inner)) if command is None else Unwrapped(tuple(inner), opaque="`find -exec` has no end")


def _puts_names_into_a_text(command: list[Word]) -> bool:
    return any("{}" in word.text and word.text != "{}" and " " in word.text for word in command)


def _unwrap_text_option(words: tuple[Word, ...]) -> Unwrapped:
    """Unwrap `su -c 'text'`, `script -c 'text'`, `flock FILE -c 'text'`."""
    program = words[0].text
    for index, word in enumerate(words[1:], 1):
        if word.text.startswith("--") and any(
            name.startswith(word.text.partition("=")[0]) for name in ("--command", "--session-command", "--shell")
        ):
            is_plain = word.text == "--command"
        elif word.text.startswith("-") and set(word.text[1:]) & {"c", "s"}:
            is_plain = word.text.endswith("c") and word.text.count("c") == 1 and "s" not in word.text
        elif program == "runuser" and word.text.startswith("-") and "u" in word.text:
            is_plain = False
        else:
            continue
        if not is_plain or index + 1 >= len(words):
            return Unwrapped(opaque=f"what `{program} {word.text}` runs is not looked at")
        return _unwrap_text([words[index + 1]], program, keep=True)
    return Unwrapped()


def _unwrap_jobs(words: tuple[Word, ...]) -> Unwrapped:
    if not any(word.text.startswith("-") and "x" in word.text for word in words[1:]):
        return Unwrapped()
    return _unwrap_wrapper(words, CommandWrapper("lnprsx"))


def _unwrap_flock(words: tuple[Word, ...]) -> Unwrapped:
    if any(word.text in ("-c", "--command") for word in words):
        return _unwrap_text_option(words)
    long_flags = ("--shared", "--exclusive", "--nonblock", "--close", "--verbose", "--no-fork")
    long_valued = ("--timeout", "--wait", "--conflict-exit-code")
    return _unwrap_wrapper(words, CommandWrapper("sexnuoFv", "wE", long_flags, long_valued, operands=1))


_SPECIAL_CASES: Mapping[str, Callable[[tuple[Word, ...]], Unwrapped]] = {
    "env": _unwrap_env,
    "command": _unwrap_command,
    "eval": _unwrap_eval,
    "find": _unwrap_find,
    "su": _unwrap_text_option,
    "runuser": _unwrap_text_option,
    "script": _unwrap_text_option,
    "flock": _unwrap_flock,
    "jobs": _unwrap_jobs,
}
