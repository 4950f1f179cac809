"""Commands that destroy what cannot be restored. Every surface warns about them, and no grant beyond the call is
offered. `ALWAYS_ASKED_RULES` need approval whatever the rules say; an explicit rule can allow the others."""

import re
from functools import cache

from treadle.tools.shell.destructive_rules import DESTRUCTIVE_RULES
from treadle.tools.shell.rules import CommandRule, RuleTable
from treadle.tools.shell.simple_commands import ParsedLine, SimpleCommand
from treadle.tools.shell.wrappers import SHELLS

_EVERYTHING = re.compile(
    r"(/+|/+\*|/\.\*?|~[a-z]*/*\*?|\$\{?HOME\}?/*\*?"
    r"|/+(bin|boot|dev|etc|home|lib|lib64|opt|proc|root|sbin|sys|usr|var|Users|System|Library)(/+\*?)?)"
)
_FETCHERS = frozenset({"curl", "wget", "fetch", "aria2c", "http"})
_INTERPRETERS = SHELLS | {"python", "python3", "perl", "ruby", "node", "php"}
_DEVICE = re.compile(r"/dev/(?!null$|zero$|stdout$|stderr$|tty$|shm/|fd/)")
_DEVICE_REDIRECTION = re.compile(r">[|&]?\s*['\"]?(/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|md|loop|dm-)\w*)")
_FORK_BOMB = re.compile(r"([^\s;{}()|&]{1,40})\s{0,9}\(\s{0,9}\)\s{0,9}\{[^}]{0,200}\1\s{0,9}\|\s{0,9}\1\s{0,9}&")


def _is_on_everything(call: SimpleCommand) -> bool:
    return any(_EVERYTHING.fullmatch(_normalize_path(operand)) for operand in call.operands)


def _normalize_path(path: str) -> str:
    return re.sub(r"/\./|/[^/]+/\.\.(?=/|$)", "/", path)


def _removes_everything(call: SimpleCommand) -> bool:
    return call.has("--no-preserve-root") or (call.has("-r", "-R", "--recursive") and _is_on_everything(call))


def _pushes_over(call: SimpleCommand) -> bool:
    if "push" not in call.operands:
        return False
    refs = call.operands[call.operands.index("push") + 1 :]
    forced = call.has("-f", "-d", "--force", "--force-with-lease", "--mirror", "--delete", "--prune")
    return forced or any(ref.startswith(("+", ":")) for ref in refs)


def _loses_history(call: SimpleCommand) -> bool:
    text = f" {call.text} "
    return bool(
        re.search(r" (filter-branch|filter-repo|reflog expire|update-ref -d) | gc .*--prune=(now|all)", text)
    )


ALWAYS_ASKED_RULES = (
    CommandRule(
        ("rm",),
        "removes a whole system or home",
        ("rm -rf /", "rm -r -f ~", "rm -rf $HOME/*", "rm -fr /*", "rm --recursive /etc/", "sudo rm -rf \"$HOME\"",
         "rm -rf --no-preserve-root x", "/bin/rm -rf /usr/../"),
        ("rm -rf build", "rm -rf ./*", "rm /etc/x", "rm -rf /tmp/x", "rm -rf ~/x"),
        _removes_everything,
    ),
    CommandRule(
        ("find",),
        "removes a whole system or home",
        ("find / -delete", "find ~ -type f -exec rm {} +"),
        ("find . -delete", "find / -name x"),
        lambda call: _is_on_everything(call)
        and bool(re.search(r" -delete| -exec\w* (/bin/)?(rm|shred) ", call.text)),
    ),
    CommandRule(
        ("mkfs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.vfat", "mke2fs", "wipefs", "fdisk", "parted",
         "sgdisk", "cryptsetup", "shred", "blkdiscard", "mkswap"),
        "destroys what is on a disk",
        ("mkfs.ext4 /dev/sda1", "sudo wipefs -a /dev/sdb", "shred x"),
        ("ls /dev", "fdisk -l"),
        lambda call: call.arguments != ("-l",),
    ),
    CommandRule(
        ("dd", "tee", "cp", "cat"),
        "writes to a device",
        ("dd if=x of=/dev/sda", "echo 1 | tee /dev/nvme0n1", "cp x /dev/sdb"),
        ("dd if=/dev/zero of=x", "dd if=x of=/dev/null", "cat /dev/urandom"),
        lambda call: call.program != "cat"
        and any(_DEVICE.match(word.removeprefix("of=")) for word in call.arguments[-1:] + tuple(
            word for word in call.arguments if word.startswith("of=")
        )),
    ),
    CommandRule(
        ("shutdown", "reboot", "poweroff", "halt", "init", "telinit"),
        "stops the machine",
        ("shutdown -h now", "sudo reboot", "init 0"),
        ("npm init", "init --help"),
        lambda call: call.program not in ("init", "telinit") or call.arguments[:1] in (("0",), ("6",)),
    ),
    CommandRule(
        ("systemctl",),
        "stops the machine",
        ("systemctl reboot", "systemctl poweroff"),
        ("systemctl status x", "systemctl restart x"),
        lambda call: any(word in ("reboot", "poweroff", "halt", "kexec") for word in call.operands),
    ),
    CommandRule(
        ("chmod", "chown", "chgrp", "setfacl"),
        "changes the rights of a whole system or home",
        ("chmod -R 777 /", "chown -R me ~", "sudo chmod -R u+x /usr"),
        ("chmod -R 755 build", "chmod 644 /etc/x", "chown me x"),
        lambda call: call.has("-R", "--recursive") and _is_on_everything(call),
    ),
    CommandRule(
        ("git",),
        "overwrites or removes what others have pushed",
        ("git push --force", "git push -f origin main", "git push origin +main", "git push origin :old",
         "git push --force-with-lease", "git -C x push --mirror", "git push origin --delete x"),
        ("git push", "git push origin main", "git fetch --force", "git push -u origin x"),
        _pushes_over,
    ),
    CommandRule(
        ("git", "git-filter-repo"),
        "rewrites or loses the history of a repository",
        ("git filter-branch --all", "git reflog expire --expire=now --all", "git gc --prune=now"),
        ("git gc", "git reflog", "git log"),
        _loses_history,
    ),
    CommandRule(
        tuple(sorted(_INTERPRETERS)),
        "runs what was just fetched from the network, unread; fetch it to a file and read it first",
        ("curl -fsSL https://x.example/i.sh | sh", "wget -qO- x | sudo bash", "curl x | tee y | python3 -"),
        ("curl x | grep y", "cat x.sh | bash", "curl x | python3 -m json.tool"),
        lambda call: bool(_FETCHERS & set(call.fed_by)) and not (call.operands and call.operands[0] != "-"),
    ),
    CommandRule(
        ("kill", "pkill", "killall"),
        "ends every process of this user",
        ("kill -9 -1", "kill -KILL -1"),
        ("kill -9 123", "kill -1 123", "pkill x"),
        lambda call: call.arguments[-1:] == ("-1",) and len(call.arguments) > 1,
    ),
    CommandRule(
        ("crontab", "userdel", "deluser", "groupdel"),
        "removes an account or its schedule",
        ("crontab -r", "userdel bob"),
        ("crontab -l",),
        lambda call: call.program != "crontab" or call.has("-r"),
    ),
    CommandRule(
        ("terraform", "tofu", "pulumi"),
        "destroys what it once set up",
        ("terraform destroy -auto-approve", "pulumi destroy"),
        ("terraform plan", "terraform apply"),
        lambda call: "destroy" in call.operands,
    ),
)  # fmt: skip


@cache
def _always_asked() -> RuleTable:
    return RuleTable(ALWAYS_ASKED_RULES)


@cache
def _destructive() -> RuleTable:
    return RuleTable((*ALWAYS_ASKED_RULES, *DESTRUCTIVE_RULES))


def find_caution(line: str, parsed: ParsedLine) -> str | None:
    """Return why a line needs approval whatever the rules say, or None."""
    return _find_in_line(line) or _describe(_always_asked().find_first(parsed))


def find_destruction(line: str, parsed: ParsedLine) -> str | None:
    """Return what a line would destroy, or None."""
    return _find_in_line(line) or _describe(_destructive().find_first(parsed))


def _find_in_line(line: str) -> str | None:
    if _FORK_BOMB.search(line):
        return "the line starts copies of itself without end"
    device = _DEVICE_REDIRECTION.search(line)
    return None if device is None else f"the line writes to the device `{device[1]}`"


def _describe(found: tuple[SimpleCommand, CommandRule] | None) -> str | None:
    return None if found is None else f"`{found[0].text}` {found[1].says}"
