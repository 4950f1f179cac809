"""Commands that would wait for a terminal, which they never get, and what to use instead."""

import re
from functools import cache

from treadle.tools.shell.rules import CommandRule, RuleTable
from treadle.tools.shell.simple_commands import ParsedLine, SimpleCommand

_QUERIES = ("--version", "--help", "-V")


def _is_query(call: SimpleCommand) -> bool:
    """Return whether it prints something about itself and ends."""
    return call.arguments == ("-h",) or any(word in _QUERIES for word in call.arguments)


def _is_interactive(call: SimpleCommand) -> bool:
    return not _is_query(call)


def _opens_repl(call: SimpleCommand) -> bool:
    """Return whether it has no script, no text to run and nothing to read."""
    forced = "-i" in call.options
    return not _is_query(call) and (forced or not (call.fed or call.operands or _runs_text(call)))


def _runs_text(call: SimpleCommand) -> bool:
    return any(word.startswith(("-c", "-m", "-e", "-r", "-p", "--eval", "--print", "-E")) for word in call.options)


def _opens_shell(call: SimpleCommand) -> bool:
    clusters = "".join(word[1:] for word in call.options if not word.startswith("--"))
    forced = "i" in clusters and "c" not in clusters
    return not _is_query(call) and (forced or not (call.fed or call.operands or "c" in clusters or "s" in clusters))


def _opens_client(call: SimpleCommand) -> bool:
    """Return whether a database client has neither a statement nor a file of statements."""
    given = call.has("-c", "-f", "-e", "-l", "--command", "--file", "--execute", "--eval", "--list", "--query")
    return not (given or call.fed or _is_query(call))


def _opens_sqlite(call: SimpleCommand) -> bool:
    return not (call.fed or _is_query(call)) and len(call.operands) < 2


def _opens_ssh_shell(call: SimpleCommand) -> bool:
    """Return whether only the host is left after the options and their values."""
    rest, operands = list(call.arguments), 0
    while rest:
        word = rest.pop(0)
        if re.fullmatch(r"-[bcDEeFIiJLlmOopQRSWw]", word):
            del rest[:1]
        operands += not word.startswith("-")
    return operands < 2 and not (call.fed or call.has("-N", "-V", "-G", "-O", "-Q"))


def _opens_editor(call: SimpleCommand) -> bool:
    """Return whether `git commit` or a similar command lacks the message, so that an editor opens."""
    if not call.operands or call.operands[0] not in ("commit", "tag", "merge", "revert", "cherry-pick"):
        return False
    verb = call.operands[0]
    given = call.has(
        "-m", "-F", "-C", "--message", "--file", "--no-edit", "--reuse-message", "--fixup", "--dry-run"
    )
    if verb == "commit":
        return not given or call.has("-e", "--edit", "--patch", "--interactive") or "-p" in call.options
    if verb == "tag":
        return call.has("-a", "-s", "--annotate", "--sign") and not given
    return call.has("--edit") or "-e" in call.options


def _asks_piece_by_piece(call: SimpleCommand) -> bool:
    verb = call.operands[0] if call.operands else ""
    if verb == "rebase":
        return "-i" in call.options or call.has("--interactive")
    chosen = "-p" in call.options or "-i" in call.options or call.has("--patch", "--interactive")
    return verb in ("add", "checkout", "restore", "reset", "stash", "clean") and chosen


def _follows(call: SimpleCommand) -> bool:
    return call.has("-f", "-F", "--follow") and "timeout" not in call.within


def _never_ends(call: SimpleCommand) -> bool:
    return "timeout" not in call.within and not _is_query(call)


def _needs_tty(call: SimpleCommand) -> bool:
    verbs = call.operands[:2]
    if not any(verb in ("run", "exec", "start", "compose") for verb in verbs):
        return False
    before = call.arguments
    return any(re.fullmatch(r"-(it|ti|t|tty)|--tty(=true)?", word) for word in before)


TERMINAL_RULES = (
    CommandRule(
        ("vim", "vi", "nvim", "view", "vimdiff", "nano", "pico", "micro", "emacs", "joe", "ed", "ex", "hx"),
        "is an editor; write files with `write_file` or `edit_file`, or with `sed -i` or a here-document",
        ("vim x", "sudo nano /etc/hosts", "git diff; emacs -nw x"),
        ("vim --version", "vim -es -c '%s/a/b/' -c wq x", "emacs --batch -l x.el", "printf '1p' | ed x"),
        lambda call: not (_is_query(call) or call.fed or call.has("--batch", "--headless", "-s", "--script")),
    ),
    CommandRule(
        ("less", "more", "most", "pg"),
        "is a pager; use `cat`, `head -n`, `tail -n` or `sed -n '1,80p'`, and leave it out at the end of a pipe",
        ("less x", "git log | less", "more x"),
        ("less --version", "cat less"),
        _is_interactive,
    ),
    CommandRule(
        ("python", "python3", "ipython", "bpython", "node", "irb", "ruby", "php", "lua", "ghci", "scala", "jshell"),
        "opens a prompt; hand it a script, or a text with `-c` or `-e`",
        ("python", "python3 -i x.py", "node", "cd x && irb"),
        ("python x.py", "python -c 'print(1)'", "python3 -m pytest", "node -e 1", "echo 1 | python3",
         "node --version", "python3 - <<E\n1\nE"),
        _opens_repl,
    ),
    CommandRule(
        ("bash", "sh", "zsh", "dash", "fish", "ksh"),
        "opens a shell; give the commands themselves, or a script",
        ("bash", "bash -i", "sudo bash", "sh -l"),
        ("bash x.sh", "bash -lc 'echo 1'", "echo ls | sh", "bash --version"),
        _opens_shell,
    ),
    CommandRule(
        ("psql", "mysql", "mariadb", "mongo", "mongosh", "redis-cli", "clickhouse-client", "cqlsh"),
        "opens a prompt; give the statement with `-c`, `-e` or `--eval`, or pipe it in",
        ("psql mydb", "mysql -u root", "mongosh", "psql -h host mydb"),
        ("psql -c 'select 1' mydb", "mysql -e 'select 1'", "psql mydb < x.sql", "redis-cli -h host get x"),
        lambda call: _opens_client(call) and not (call.program == "redis-cli" and call.operands),
    ),
    CommandRule(
        ("sqlite3", "duckdb"),
        "opens a prompt; give the statement after the file: `sqlite3 x.db 'select 1'`",
        ("sqlite3", "sqlite3 x.db"),
        ("sqlite3 x.db 'select 1'", "sqlite3 x.db < x.sql", "sqlite3 --version"),
        _opens_sqlite,
    ),
    CommandRule(
        ("bc", "dc", "gdb", "lldb", "pdb", "ftp", "telnet", "sftp", "nslookup"),
        "reads what is typed; pipe its commands in, or give them as arguments",
        ("bc", "gdb ./a.out", "telnet host 25"),
        ("echo 1+1 | bc", "gdb -batch -ex bt ./a.out", "nslookup example.org", "bc x.bc"),
        lambda call: not (
            call.fed
            or _is_query(call)
            or call.has("-batch", "--batch", "-ex", "-b")
            or (call.program in ("bc", "dc", "nslookup") and bool(call.arguments))
        ),
    ),
    CommandRule(
        ("top", "htop", "btop", "atop", "glances", "iotop", "nvtop"),
        "draws on a terminal; use `ps aux --sort=-%cpu | head` or `top -bn1`",
        ("top", "htop -u x"),
        ("top -bn1", "top -b -n 1 | head"),
        lambda call: not call.has("-b", "--batch") and not _is_query(call),
    ),
    CommandRule(
        ("tmux", "screen", "byobu", "mc", "ranger", "nnn", "lazygit", "tig", "ncdu", "fzf", "dialog", "whiptail"),
        "draws on a terminal; use commands that print and end",
        ("tmux", "screen -r", "tig"),
        ("tmux ls", "tmux kill-server", "screen -ls", "screen -dmS x ./serve", "cat x | fzf --filter y", "tmux -V"),
        lambda call: not (
            _is_query(call)
            or call.has("--filter")
            or (call.program == "screen" and ("-ls" in call.options or (call.has("-d") and call.has("-m"))))
            or (call.program == "tmux" and call.operands[:1] not in ((), ("attach",), ("a",), ("attach-session",)))
        ),
    ),
    CommandRule(
        ("ssh", "slogin", "mosh"),
        "without a command opens a shell on the other side; give the command: `ssh -o BatchMode=yes host 'uptime'`",
        ("ssh host", "ssh -p 22 -i key user@host"),
        ("ssh host uptime", "ssh -p 22 host 'ls -l'", "ssh -V", "ssh host < x.sh"),
        _opens_ssh_shell,
    ),
    CommandRule(
        ("git",),
        "would open an editor; give the message with `-m`, or `--no-edit` to keep the one there is",
        ("git commit", "git commit -a", "git commit --amend", "git tag -a v1", "git -C x commit -v"),
        ("git commit -m x", "git commit -am x", "git commit --amend --no-edit", "git tag v1", "git tag -a v1 -m x",
         "git merge x", "git log commit"),
        lambda call: _opens_editor(_without_git_folder(call)),
    ),
    CommandRule(
        ("git",),
        "asks piece by piece; name the files or commits instead (`git add FILE`, `git rebase --onto`)",
        ("git add -p", "git rebase -i HEAD~3", "git checkout --patch x", "git stash -p"),
        ("git add x", "git rebase main", "git log -p", "git stash"),
        lambda call: _asks_piece_by_piece(_without_git_folder(call)),
    ),
    CommandRule(
        ("tail", "journalctl", "dmesg"),
        "with `-f` never ends; leave it out, or put `timeout 10` before it",
        ("tail -f x", "journalctl -fu x", "tail -n5 -F x"),
        ("tail x", "tail -n 5 x", "timeout 5 tail -f x", "journalctl -u x"),
        _follows,
    ),
    CommandRule(
        ("kubectl", "docker"),
        "with `-f` never ends; leave it out, or put `timeout 10` before it",
        ("kubectl logs -f x", "docker logs --follow x"),
        ("docker logs x", "kubectl apply -f x.yaml", "timeout 9 docker logs -f x"),
        lambda call: "logs" in call.operands and _follows(call),
    ),
    CommandRule(
        ("watch",),
        "never ends; run the command itself, again if need be",
        ("watch ls", "watch -n 5 df -h"),
        ("timeout 5 watch ls", "watch --version"),
        _never_ends,
    ),
    CommandRule(
        ("read",),
        "waits for a person to type, and none is there. Give the value in the command",
        ("read x", "read -p 'sure? ' answer"),
        ("echo 1 | read x", "while read x; do echo $x; done < f", "ls | while read f; do ls $f; done"),
        lambda call: not call.fed and not call.has("-u"),
    ),
    CommandRule(
        ("docker", "podman", "kubectl"),
        "with `-t` wants a terminal; leave `-it` out",
        ("docker run -it ubuntu bash", "docker exec -ti x sh", "kubectl exec --tty x -- sh"),
        ("docker run ubuntu ls", "docker build -t x .", "kubectl exec x -- ls", "docker run -i x"),
        _needs_tty,
    ),
    CommandRule(
        ("npm", "yarn", "pnpm"),
        "asks questions; add `-y`",
        ("npm init", "yarn init"),
        ("npm init -y", "npm install", "npm run init", "npm init --yes"),
        lambda call: call.operands[:1] == ("init",) and len(call.operands) == 1 and not call.has("-y", "--yes"),
    ),
    CommandRule(
        ("passwd", "su", "login", "visudo", "vipw", "chsh", "crontab", "ssh-keygen", "gpg-agent", "wizard"),
        "asks for what only a person can type; there is a way without (`sudo -n`, `crontab FILE`, `-N ''`)",
        ("passwd", "su", "su - user", "crontab -e", "visudo", "ssh-keygen -t ed25519"),
        ("su -c ls user", "crontab -l", "crontab x", "ssh-keygen -t ed25519 -N '' -f k", "passwd --status"),
        lambda call: _asks_for_typing(call),
    ),
)  # fmt: skip


def _without_git_folder(call: SimpleCommand) -> SimpleCommand:
    """Return `git -C folder commit` as `git commit`."""
    words = list(call.words)
    while len(words) > 3 and words[1] == "-C":
        del words[1:3]
    return SimpleCommand(tuple(words), call.fed, call.fed_by, call.within)


def _asks_for_typing(call: SimpleCommand) -> bool:
    match call.program:
        case "crontab":
            return call.has("-e")
        case "ssh-keygen":
            return not call.has("-N", "-l", "-y", "-R", "-F", "-A")
        case "su":
            return not (call.has("-c", "--command") or call.fed)
        case "passwd":
            return not (call.has("--status", "-S", "--stdin", "-l", "-u", "-d", "--help") or call.fed)
        case _:
            return not _is_query(call)


@cache
def _table() -> RuleTable:
    return RuleTable(TERMINAL_RULES)


def find_terminal_advice(parsed: ParsedLine) -> str | None:
    """Return which command of a line would wait for a terminal, and what to use instead, or None."""
    found = _table().find_first(parsed)
    return None if found is None else f"`{found[0].text}`: `{found[0].program}` {found[1].says}."
