"""Programs that run what they are given: `sudo`, `env`, `xargs`, `find -exec`, `bash -c`, ... and what that is."""

from collections.abc import Callable, Mapping
from itertools import pairwise

from msgspec import Struct

from treadle.tools.shell.calls import Inner, Unwrapped
from treadle.tools.shell.variables import trusted_variable
from treadle.tools.shell.words import Word

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash", "fish", "rbash", "mksh"})


class Wrapper(Struct, frozen=True):
    """How a program's own options end and the command that it runs begins."""

    valued: tuple[str, ...] = ()
    """Options whose value is the next word."""
    operands: int = 0
    """Words of its own before the command."""
    keep: bool = False
    """It lends rights or does more than to run the command."""
    joins: bool = False
    """It hands its words, with spaces between, to a shell."""
    why: str | None = None
    """Why what it runs cannot be known from the line."""


WRAPPERS: Mapping[str, Wrapper] = {
    "env": Wrapper(("-u", "--unset", "-C", "--chdir")),
    "sudo": Wrapper(("-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "-U", "-r", "-t"), keep=True),
    "doas": Wrapper(("-u", "-C"), keep=True),
    "nice": Wrapper(("-n", "--adjustment")),
    "ionice": Wrapper(("-c", "-n")),
    "chrt": Wrapper(operands=1),
    "taskset": Wrapper(operands=1),
    "nohup": Wrapper(),
    "setsid": Wrapper(),
    "timeout": Wrapper(("-k", "-s", "--kill-after", "--signal"), operands=1),
    "time": Wrapper(("-f", "-o")),
    "stdbuf": Wrapper(("-i", "-o", "-e")),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "exec": Wrapper(("-a",)),
    "coproc": Wrapper(),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "fakeroot": Wrapper(),
    "unbuffer": Wrapper(),
    "chronic": Wrapper(),
    "strace": Wrapper(("-o", "-e", "-s", "-p", "-P", "-u", "-E"), keep=True),
    "chroot": Wrapper(operands=1, keep=True),
    "xargs": Wrapper(
        ("-I", "-n", "-P", "-L", "-s", "-d", "-E", "-a", "--max-args", "--max-procs", "--delimiter", "--arg-file"),
        keep=True,
        why="`xargs` adds words to a command that nobody has seen",
    ),
    "parallel": Wrapper(
        ("-j", "--jobs", "-n", "-N", "-S"), keep=True, why="`parallel` adds words to a command that nobody has seen"
    ),
    "watch": Wrapper(("-n", "--interval"), keep=True, joins=True),
    "ssh": Wrapper(
        ("-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R", "-S",
         "-W", "-w"),
        operands=1,
        keep=True,
        joins=True,
    ),
}  # fmt: skip


def unwrap(words: tuple[Word, ...]) -> Unwrapped:
    """What a command runs beside itself, if anything."""
    program = words[0].text
    if program in SHELLS:
        return _of_shell(words)
    if (special := _SPECIAL.get(program)) is not None:
        return special(words)
    wrapper = WRAPPERS.get(program)
    return Unwrapped() if wrapper is None else _of_wrapper(words, wrapper)


def _of_wrapper(words: tuple[Word, ...], wrapper: Wrapper) -> Unwrapped:
    program, rest = words[0].text, list(words[1:])
    operands = wrapper.operands
    while rest:
        word = rest[0]
        if not word.is_known:
            return Unwrapped(opaque=f"what `{program}` runs comes from an expansion")
        if word.text == "--":
            rest.pop(0)
        elif word.text.startswith("-") and len(word.text) > 1:
            del rest[: 2 if word.text in wrapper.valued else 1]
        elif program in ("env", "sudo", "doas") and "=" in word.text:
            if not trusted_variable(word.text.partition("=")[0]):
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
        return _of_text(rest, program, keep=wrapper.keep)
    return Unwrapped((Inner(tuple(rest)),), wrapper.keep, wrapper.why)


def _of_text(words: list[Word], program: str, keep: bool) -> Unwrapped:
    """Words that are handed to a shell as one text."""
    if any(word.dynamic for word in words):
        return Unwrapped(opaque=f"the text that `{program}` runs comes from an expansion")
    return Unwrapped((Inner(text=" ".join(word.text for word in words)),), keep)


# ── Those with ways of their own ──


def _of_shell(words: tuple[Word, ...]) -> Unwrapped:
    program = words[0].text
    takes_text, rest = False, list(words[1:])
    while rest and rest[0].text[:1] in ("-", "+") and len(rest[0].text) > 1:
        option = rest.pop(0).text
        if option in ("--rcfile", "--init-file"):
            return Unwrapped(opaque=f"`{program} {option}` runs a file first")
        if option in ("-o", "+o", "-O", "+O"):
            del rest[:1]
        elif not option.startswith("--") and "c" in option:
            takes_text = True
    if rest and not rest[0].is_known:
        return Unwrapped(opaque=f"what `{program}` runs comes from an expansion")
    if takes_text:
        return Unwrapped((Inner(text=rest[0].text),), keep=False) if rest else Unwrapped()
    return Unwrapped()


def _of_env(words: tuple[Word, ...]) -> Unwrapped:
    """`env -S 'text'` splits a text into the words of a command."""
    for index, word in enumerate(words[1:], 1):
        if word.text.startswith("-") and not word.text.startswith("--") and "S" in word.text:
            text = [word.after(word.text.index("S") + 1), *words[index + 1 :]]
        elif word.text.startswith("--split-string"):
            text = [word.after(len("--split-string=")), *words[index + 1 :]]
        elif word.text.startswith("-") or "=" in word.text:
            continue
        else:
            break
        if any(piece.dynamic or "\\" in piece.text or "$" in piece.text for piece in text):
            return Unwrapped(opaque="the text that `env -S` splits is not plain")
        joined = " ".join(piece.text for piece in text if piece.text)
        return Unwrapped((Inner(text=f"env {joined}"),), keep=False)
    return _of_wrapper(words, WRAPPERS["env"])


def _of_command(words: tuple[Word, ...]) -> Unwrapped:
    """`command -v NAME` only says where it is."""
    if len(words) > 1 and words[1].text in ("-v", "-V"):
        return Unwrapped()
    return _of_wrapper(words, WRAPPERS["command"])


def _of_eval(words: tuple[Word, ...]) -> Unwrapped:
    return _of_text(list(words[1:]), "eval", keep=False) if len(words) > 1 else Unwrapped()


def _of_find(words: tuple[Word, ...]) -> Unwrapped:
    inner: list[Inner] = []
    command: list[Word] | None = None
    if any(word.splits for word in words):
        return Unwrapped(opaque="what `find` does comes from an expansion")
    for word in words[1:]:
        if command is None:
            if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
                command = []
            elif word.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
                return Unwrapped(opaque=f"`find {word.text}` writes to a file")
        elif word.text in (";", "+"):
            if command:
                inner.append(Inner(tuple(command)))
            command = None
        else:
            command.append(word)
    return Unwrapped(tuple(inner)) if command is None else Unwrapped(tuple(inner), opaque="`find -exec` has no end")


def _of_text_option(words: tuple[Word, ...]) -> Unwrapped:
    """`su -c 'text'`, `script -c 'text'`, `flock FILE -c 'text'`."""
    for word, following in pairwise(words):
        if word.text in ("-c", "--command"):
            return _of_text([following], words[0].text, keep=True)
    return Unwrapped()


def _of_flock(words: tuple[Word, ...]) -> Unwrapped:
    if any(word.text in ("-c", "--command") for word in words):
        return _of_text_option(words)
    return _of_wrapper(words, Wrapper(("-w", "--timeout", "-E"), operands=1))


_SPECIAL: Mapping[str, Callable[[tuple[Word, ...]], Unwrapped]] = {
    "env": _of_env,
    "command": _of_command,
    "eval": _of_eval,
    "find": _of_find,
    "su": _of_text_option,
    "runuser": _of_text_option,
    "script": _of_text_option,
    "flock": _of_flock,
}
