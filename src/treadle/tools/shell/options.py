"""Options with which a program runs others, or writes where it otherwise would not."""

import re
from collections.abc import Mapping

from msgspec import Struct


class RiskyOptions(Struct, frozen=True):
    short: str = ""
    """Letters, also within a group: `-xf`."""
    valued: str = ""
    """Letters after which the rest of a word is a value."""
    long: tuple[str, ...] = ()
    """Also abbreviated, as most programs accept them: `--to-com`."""
    bundled: bool = False
    """The first word contains letters without a dash, as in `tar xf`."""
    text: re.Pattern[str] | None = None
    """A pattern over all arguments."""

    def is_in(self, arguments: tuple[str, ...]) -> bool:
        if self.text is not None and self.text.search(f" {' '.join(arguments)}"):
            return True
        if self.bundled and arguments and self._has(f"-{arguments[0].lstrip('-')}"):
            return True
        return any(self._has(word) for word in arguments)

    def _has(self, word: str) -> bool:
        if word.startswith("--"):
            name = word.partition("=")[0]
            return len(name) > 2 and any(option.startswith(name) for option in self.long)
        if not word.startswith("-"):
            return False
        before = word[1:]
        for index, letter in enumerate(before):
            if letter in self.valued and letter not in self.short:
                before = before[:index]
                break
        return any(letter in before for letter in self.short)


_COMPILER = RiskyOptions(text=re.compile(r" (-wrapper|-B|-fplugin|-specs|--specs|-load|@)"))
_APT = RiskyOptions("oc", "t", ("--option", "--config-file"))
_KUBERNETES = RiskyOptions(long=("--kubeconfig", "--post-renderer"))
_PACKAGES = RiskyOptions(long=("--script-shell", "--node-options", "--userconfig", "--globalconfig", "--shell"))
RISKY_OPTIONS: Mapping[str, RiskyOptions] = {
    "tar": RiskyOptions(
        "IF",
        "fCTXVgKNbHL",
        ("--checkpoint-action", "--to-command", "--use-compress-program", "--rsh-command", "--info-script",
         "--new-volume-script", "--rmt-command"),
        bundled=True,
    ),
    "rsync": RiskyOptions("e", "fMTB", ("--rsh", "--rsync-path"), text=re.compile(r" (-M|--remote-option)")),
    "scp": RiskyOptions("oSFD", "cilP"),
    "sftp": RiskyOptions("oSFDb", "cilPR"),
    "ssh": RiskyOptions(
        "FI",
        "bcDEeiJLlmOopQRSWwBP",
        text=re.compile(r"(?i)(ProxyCommand|LocalCommand|KnownHostsCommand|PKCS11Pro)"),
    ),
    "awk": RiskyOptions(
        "filE",
        "Fv",
        ("--file", "--exec", "--include", "--load", "--dump-variables", "--profile", "--pretty-print"),
        text=re.compile(r"system\s*\(|(?<!\|)\|(?!\|)|getline|@\w+\s*[(\"]|print.*>", re.DOTALL),
    ),
    "sort": RiskyOptions("o", "ktST", ("--compress-program", "--output")),
    "rg": RiskyOptions(long=("--pre", "--hostname-bin")),
    "fd": RiskyOptions("xX", "edtEcj", ("--exec", "--exec-batch")),
    "man": RiskyOptions("PHC", "kfeLMmsrRp", ("--pager", "--html", "--config-file", "--browser")),
    "zip": RiskyOptions(text=re.compile(r" (-\w*TT|--unzip-command)")),
    "make": RiskyOptions(
        "E",
        "fCIjloW",
        ("--eval",),
        text=re.compile(r" (\.?SHELL\w*|MAKEFLAGS|MAKE|\w+:?:?=.*\$)"),
    ),
    "split": RiskyOptions(long=("--filter",)),
    "tee": RiskyOptions(text=re.compile(r" [^-]| --? ")),
    "hash": RiskyOptions("p"),
    "apt": _APT,
    "apt-get": _APT,
    "apt-cache": _APT,
    "wget": RiskyOptions("e", "OoaPUtTwQDARIXiBl", ("--use-askpass", "--execute", "--config")),
    "curl": RiskyOptions(
        "KOD",
        "AbcCdeEFhHmoPQrtTuUwxXyYz",
        ("--config", "--remote-name", "--remote-name-all", "--dump-header", "--engine", "--cookie-jar"),
        text=re.compile(r" (-\w*o|--output)(?!\w)(?![= ]?(/dev/null|-)( |$))| -\w*o\w"),
    ),
    "gcc": _COMPILER,
    "g++": _COMPILER,
    "cc": _COMPILER,
    "c++": _COMPILER,
    "cpp": _COMPILER,
    "clang": _COMPILER,
    "clang++": _COMPILER,
    "go": RiskyOptions(text=re.compile(r" -?-(toolexec|vettool|exec|modfile|overlay)\b| env .*-w")),
    "nc": RiskyOptions("ec", "IiMmOPpqsTVWwXx"),
    "ncat": RiskyOptions("ec", "ghimpstwxX", ("--exec", "--sh-exec", "--lua-exec")),
    "strace": RiskyOptions(text=re.compile(r" (-\w*o ?|--output[= ])[|!]")),
    "openssl": RiskyOptions(text=re.compile(r" -(engine|provider|provider-path|config)\b")),
    "tcpdump": RiskyOptions("zwW", "BCcDEFGijMrsTVy"),
    "dmesg": RiskyOptions("Cc", "lfn", ("--clear", "--read-clear")),
    "uniq": RiskyOptions(text=re.compile(r"^( -\S+)* [^- ]\S* [^- ]")),
    "xxd": RiskyOptions(text=re.compile(r"^( -\S+)* [^- ]\S* [^- ]")),
    "date": RiskyOptions("s", "dfrI", ("--set",)),
    "sqlite3": RiskyOptions(text=re.compile(r"\.(sh|sys|load|import|once|output|excel|backup|save|log|archive)")),
    "psql": RiskyOptions(text=re.compile(r"(?i)\\[!ogw]|\\copy|program")),
    "mysql": RiskyOptions(text=re.compile(r"\\!|\\T|system|tee")),
    "gdb": RiskyOptions(text=re.compile(r"shell|!|python|pipe|source|\||-x |--command|make")),
    "vim": RiskyOptions(text=re.compile(r"!|system|py|lua|perl|ruby|source|-S|-u|-w")),
    "tree": RiskyOptions("o", "LPIH"),
    "kubectl": _KUBERNETES,
    "helm": _KUBERNETES,
    "npm": _PACKAGES,
    "pnpm": _PACKAGES,
    "yarn": _PACKAGES,
    "cargo": RiskyOptions("Z", "pj", ("--config",)),
    "pip": RiskyOptions(long=("--python", "--config-settings")),
    "pip3": RiskyOptions(long=("--python", "--config-settings")),
    "bat": RiskyOptions(long=("--pager", "--diff")),
    "journalctl": RiskyOptions(text=re.compile(r" --(vacuum|rotate|flush|relinquish)")),
}  # fmt: skip
"""By program name."""
PROGRAM_ALIASES: Mapping[str, str] = {
    "gawk": "awk", "mawk": "awk", "nawk": "awk", "gmake": "make", "fdfind": "fd", "gtar": "tar", "ex": "vim",
    "vi": "vim", "nvim": "vim",
}  # fmt: skip
