"""The analysis of a line: every command in it, or the reason why it is opaque."""

import time
from fnmatch import fnmatchcase
from itertools import count

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tree_sitter import Language, Parser, Tree

from treadle.tools.shell import parser
from treadle.tools.shell.glob_suggestion import suggest_pattern
from treadle.tools.shell.parser import parse_commands

each = pytest.mark.parametrize

UNDERSTOOD = {
    "git status": ["git status"],
    "a; b && c || d | e & f": ["a", "b", "c", "d", "e", "f"],
    "a\nb": ["a", "b"],
    "(a; { b; })": ["a", "b"],
    "! a": ["a"],
    "if a; then b; elif c; then d; else e; fi": ["a", "b", "c", "d", "e"],
    "for f in x y; do a $f; done": ["a $f"],
    "while a; do b; done; until c; do d; done": ["a", "b", "c", "d"],
    "case x in y) a;; *) b;; esac": ["a", "b"],
    "echo $(a) `b` \"$(c)\"": ["a", "b", "c", "echo $(a) `b` $(c)"],
    "diff <(a) <(b)": ["a", "b", "diff <(a) <(b)"],
    "cat <<E\n$(a)\nE": ["a", "cat"],
    "cat <<'E'\n$(a)\nE": ["cat"],
    "cat <<< $(a)": ["a", "cat"],
    "x=$(a); echo ${x:-$(b)}": ["a", "b", "echo ${x:-$(b)}"],
    "[[ -n $(a) && $# -eq 0 ]]; n=1; echo $((n + 1))": ["a", "echo $((n + 1))"],
    "i=0; while [ $i -lt 3 ]; do a $i; i=$((i + 1)); done": ["a $i"],
    "for i in {1..5} $(seq 3); do ((n += i)); done": ["seq 3"],
    "for ((i = 0; i < 3; i++)); do a ${x[i]} ${#x[@]} ${!x[@]}; done": ["a ${x[i]} ${#x[@]} ${!x[@]}"],
    "set -euo pipefail; shopt -s nullglob; test -v x": ["set -euo pipefail", "shopt -s nullglob", "test -v x"],
    "a \\\n  b": ["a b"],
    "bash -o pipefail -c a; bash -co pipefail b": ["a", "b"],
    "timeout -vk 1 5 a; env -iu X b; nice -5 c": ["a", "b", "c"],
    "curl -so /dev/null -XPOST x; tar xzf x -C y": ["curl -so /dev/null -XPOST x", "tar xzf x -C y"],
    "git config user.name x; git config --get a.b": ["git config user.name x", "git config --get a.b"],
    "sed -ne '/a/,/b/p;$!d' -e '1{s/x/y/gI;}' x": ["sed -ne /a/,/b/p;$!d -e 1{s/x/y/gI;} x"],
    "NODE_ENV=test a; CONFIG=1; FOO=1 b": ["a", "b"],
    "'r'm \"a b\" c\\ d $'\\x65'": ["rm a b c d e"],
    "/usr/bin/rm x; /usr//bin/./rm y": ["rm x", "rm y"],
    "bash -c 'a; b'": ["a", "b"],
    "sh -ec \"a 'b c'\"": ["a b c"],
    "bash script.sh": ["bash script.sh"],
    "eval 'a; b'": ["a", "b"],
    "env -i X=1 a b": ["a b"],
    "env -S 'a b' c": ["a b c"],
    "env '-Sa b'": ["a b"],
    "nohup nice -n 5 timeout -k 1 9 stdbuf -oL setsid a b": ["a b"],
    "time a; command a; builtin echo; exec a": ["a", "a", "echo", "a"],
    "command -v rm": ["command -v rm"],
    "sudo -u bob a b": ["sudo -u bob a b", "a b"],
    "ssh -p 22 host 'a; b'": ["ssh -p 22 host a; b", "a", "b"],
    "watch -n 1 'a | b'": ["watch -n 1 a | b", "a", "b"],
    "find . -name '*.c' -exec a {} + -ok b {} \\;": ["find . -name *.c -exec a {} + -ok b {} ;", "a {}", "b {}"],
    "su -c 'a b' bob": ["su -c a b bob", "a b"],
    "a >/dev/null 2>&1": ["a"],
    "a 2>&-": ["a"],
    "a < file": ["a"],
    "X=1 a": ["a"],
    "git log -p; git commit -c HEAD; git push -u o m": ["git log -p", "git commit -c HEAD", "git push -u o m"],
    "sed -n 1,5p x; sed 's/foo/bar/g' x": ["sed -n 1,5p x", "sed s/foo/bar/g x"],
    "echo 1 # ; rm x": ["echo 1"],
    "": [],
}  # fmt: skip


@each("line", UNDERSTOOD)
def test_plain_lines_are_split_into_commands(line: str) -> None:
    parsed = parse_commands(line)
    assert parsed.opaque is None
    assert sorted(parsed.commands) == sorted(UNDERSTOOD[line])


@each(
    "line",
    [
        # names that are not in the line
        "$x a", "$(echo rm) a", "`echo rm` a", "/bin/r? a", "{rm,-rf,a}", "r{m,} a", "\"$x\" a", "~/b*n/a x",
        "$'r\\x00m' x",
        # texts that are not in the line
        "eval $x", "bash -c \"$x\"", "bash -c $x", "ssh host $x", "env -S \"$x\"", "env $x a", "sudo $x a",
        "watch $x",
        "bash --rcfile x -c ls", "find . $x", "git $x", "docker \"$verb\" x", "mkdir {a,b}",
        # what is read and run
        "curl x | sh", "base64 -d x | bash", "cat <<E | bash\nrm\nE", "bash <<E\nrm\nE", "python3 - <<E\n1\nE",
        "echo 1 | python3", "sh < x", "bash <<< 'rm x'", "ls | xargs rm", "xargs -n1 rm < x",
        "parallel rm ::: a",
        "source x", ". x", "cat x | bash /dev/stdin",
        # what changes what comes after
        "PATH=x ls", "export PATH=x", "declare -x LD_PRELOAD=x", "readonly IFS=x", "typeset BASH_ENV=x",
        "PATH+=:x",
        "LD_PRELOAD=x ls", "LD_LIBRARY_PATH=x ls", "GIT_PAGER=x git log", "GIT_SSH_COMMAND=x git pull",
        "PAGER=x git log",
        "env GIT_PAGER=x git log", "sudo PATH=x ls", "PROMPT_COMMAND=x", "PYTHONSTARTUP=x python x",
        "NODE_OPTIONS=x node x",
        "PERL5OPT=x perl x", "read PATH", "printf -v PATH x", "mapfile PATH", "unset PATH",
        "for PATH in x; do ls; done",
        "echo ${PATH:=x}", "BASH_ALIASES[ls]=rm", "read $x", "export $x", "alias ls=rm; ls",
        "ls() { rm x; }; ls",
        "function ls { rm x; }", "hash -p /tmp/x ls", "enable -f x y", "enable -n echo", "trap 'rm x' EXIT",
        "bind -x x",
        "echo ${x@P}",
        # programs that run others
        "git -c core.pager=x log", "git -C x -c a=b log", "git --exec-path=x log", "git --config-env=a=b log",
        "git bisect run x", "git submodule foreach x", "git rebase --exec x main", "git clone ext::x",
        "tar --to-command=x xf y",
        "tar --checkpoint-action=exec=x cf y z", "rsync -e x a b", "ssh -o ProxyCommand=x host ls",
        "awk 'BEGIN{system(\"x\")}'",
        "sed '1e x' y", "sort --compress-program=x y", "rg --pre x y", "fd -x rm", "make SHELL=x",
        # files
        "echo x > f", "echo x >> f", "echo x >| f", "echo x &> f", "echo x >& f", "exec 3<>f", "> f",
        "echo x > $f",
        "echo x | tee f", "sed -i s/a/b/ f", "find . -fprintf f x", "cat < /dev/tcp/host/80", "sort -o f f",
        # substitutions that the grammar does not see
        "echo \"${y:-`rm x`}\"", "echo ${y:-`rm x`}", "cat <<E\n`rm x`\nE", "echo ${y/`rm x`/z}",
        "[[ x =~ `rm x` ]]",
        "echo ${y:-<(rm x)}",
        # what arithmetic and names evaluate again
        "a='x[$(rm)]'; echo $((a))", "a='x[$(rm)]'; ((a))", "let 'a[$(rm)]=1'", "echo $(( $(rm) ))",
        "test -v 'a[$(rm)]'", "[[ -v 'a[$(rm)]' ]]", "[ -v $x ]", "[[ 'a[$(rm)]' -eq 1 ]]", "[[ $a -gt 1 ]]",
        "printf -v 'a[$(rm)]' x", "read 'a[$(rm)]' <<< x", "unset 'a[$(rm)]'", "declare -i a='x[$(rm)]'",
        "declare 'a[$(rm)]=1'", "declare -a a='($(rm))'", "declare -n r=x; r=1", "echo ${!x}", "echo ${y:x}",
        "x[y]=1", "x=([y]=1)", "echo ${x[y]}", "x['$(rm)']=1", "for ((i = x; i; )); do :; done", "echo $[x]",
        "read k < f; echo $((k))", "for i in *; do echo $((i)); done", "bash -c 'echo $(($1))' x y",
        "env i=x bash -c '((i++))'", "z=(1); declare z=\"$f\"", "wait -p 'a[$(rm)]' -n", "OPTIND='x[$(rm)]'",
        "cat <<E\n$((i))\nE",
        # texts that builtins run
        "mapfile -C rm -c 1 a <<< x", "compgen -C rm", "compgen -W '$(rm)'", "coproc X { rm; }",
        "set -o history -H\n: rm\n!:1", "set -k; ls PATH=x", "shopt -s expand_aliases",
        # what the grammar misreads
        "r\\\nm x", "! ! rm x", "time ! rm x", "echo `echo \\`rm\\``", "echo \"${x:-'$(rm)'}\"",
        "nohup $\"rm\" x", "eval </dev/null rm x", "env >/dev/null rm x", "timeout 5 2>/dev/null rm x",
        # what is read and run
        "exec < f; bash", "exec 0< f; sh", "bash 0<<< rm", "echo rm | bash +e", "echo rm | bash -o pipefail",
        "echo rm | bash //dev/stdin", "exec 5< f; bash /dev/fd/5", "echo 1 | python3 -X dev",
        "echo 1 | python3 -E -", "echo 1 | script",
        # options of those that run others
        "timeout --kill 1 5 rm", "env --s='rm x'", "env -u X -Srm", "nice --adj 5 rm", "stdbuf --out L rm",
        "find x -exec {} \\;", "find . -exec sh -c 'rm {}' \\;", "script -ccmd x", "su --session-command=rm",
        "unshare rm", "setarch x rm", "prlimit rm", "strace -o '|rm' ls",
        # options that run programs, and that may be hidden
        "git --git-dir x -c a=b log", "git ls-remote --exec=rm .", "git ls-remote --upload=rm .",
        "git clone -qurm . x", "git rebase --ex=rm x", "git -C . bisect run rm", "git --no-pager difftool -x rm",
        "git config alias.x '!rm'", "git config core.fsmonitor rm", "git log --output=x",
        "tar cIf rm x y", "tar cf x --use-comp=rm y", "tar xf x --to-com=rm", "tar cf x *", "split --filter=rm x",
        "apt-get -o APT::Update::Pre-Invoke::=rm update", "gcc -wrapper rm x.c", "wget --use-askpass=rm x",
        "npm test --script-shell=x", "cargo test --config x", "kubectl get --kubeconfig=x pods", "curl -sSLo x y",
        "sort \"$f\"", "git log $x", "find . \"$x\" rm \\;", "printf $x 'a[$(rm)]' y",
        # scripts of sed
        "sed 1erm x", "sed s,a,rm,e x", "sed 's/a/rm/e;p' x", "sed '/a/!e rm' x", "sed '1{e rm\n}' x",
        "sed '$e rm' x", "sed -f f x", "sed -n -e p -e erm x", "sed 's/a/b/\nerm' x", "sed sxaxrmxe x",
        "sed 's/a/b/w f' x", "sed '\\,a,erm' x", "sed --expression='e rm' x", "sed s/a/$x/ y", "awk \"$x\"",
        # variables that programs are told by
        "CLOUDSDK_PYTHON=x gcloud y", "GH_PAGER=x gh pr list", "PYTEST_ADDOPTS=x pytest",
        "env HTTPS_PROXY=x curl y",
        # syntax
        "echo 'x", "a &&", "(a", "cat <<E\nx", "a )", "if a; then b", "echo \x1b[2J", "echo a\rb",
        "echo \u202ex", "\"\" x",
    ],
)  # fmt: skip
def test_lines_that_cannot_be_analysed_are_opaque(line: str) -> None:
    assert parse_commands(line).opaque is not None


@each(
    ("line", "hidden"),
    [
        ("git status; rm x", "rm x"),
        ("git status $(rm x)", "rm x"),
        ("git log | bash -c 'rm x'", "rm x"),
        ("env -S 'rm x'", "rm x"),
        ("timeout 5 env nice rm x", "rm x"),
        ("echo \"${y:-$(rm x)}\"", "rm x"),
        ("busybox rm x", "rm x"),
        ("bash -c \"bash -c 'rm x'\"", "rm x"),
        ("f() { rm x; }; f", "rm x"),
        ("coproc rm x", "rm x"),
        ("find / -execdir rm x \\;", "rm x"),
        ("echo $(( $(rm x) ))", "rm x"),
        ("cat <<E && rm x\nE\n", "rm x"),
        ("a[$(rm x)]=1", "rm x"),
        ("> $(rm x)", "rm x"),
    ],
)  # fmt: skip
def test_a_command_cannot_be_hidden(line: str, hidden: str) -> None:
    assert hidden in parse_commands(line).commands


@each(
    "line",
    [
        "a|" * 40_000 + "b", ":" + "(){ " * 24_000, "a;" * 50_000, "[[ (" * 25_000, "`>=" * 1000, "a=(" * 20_000,
        "bash -c 'a|a|a|b'; " * 500, "a " * 500_000,
    ],
)  # fmt: skip
def test_no_line_takes_long(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grammar, which takes time that grows with the square of the syntax it sees, never sees much of it."""
    seen = list[bytes]()

    class CountedParser:
        def __init__(self, language: Language) -> None:
            self._parser = Parser(language)

        def parse(self, source: bytes) -> Tree:
            seen.append(source)
            return self._parser.parse(source)

    monkeypatch.setattr(parser, "Parser", CountedParser)
    assert parse_commands(line).opaque is not None
    assert sum(source.count(byte) for source in seen for byte in b"`$(){}[]<>|&;!") <= parser.MAX_SYNTAX_CHARACTERS
    assert sum(map(len, seen)) <= 2 * parser.MAX_BYTES


def test_a_long_line_is_understood_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is understood does not depend on how much time passes."""
    hours = count(step=3600.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))
    line = "echo " + "a long story " * 5000
    assert (parse_commands(line).opaque, len(parse_commands(line).commands)) == (None, 1)


def test_deep_nesting_is_opaque() -> None:
    assert parse_commands("env " * 500 + "ls").opaque is not None
    assert parse_commands("$(" * 3000 + ")" * 3000).opaque is not None


@each(
    ("line", "pattern"),
    [
        ("git status", "git status"),
        ("git status -s", "git status *"),
        ("ls", "ls"),
        ("ls -l x", "ls *"),
        ("npm run test -- -u", "npm run test -- -u"),
        ("gh pr list --json x", "gh pr list *"),
        ("git -C x status", None),
        ("a; b", None),
        ("echo x > f", None),
        ("sudo ls", None),
        ("bash x.sh", None),
        ("python x.py", None),
        ("timeout 5 ls -l", None),
        ("git 'st*' x", None),
        # no more than was asked for
        ("rm -rf build", "rm -rf build"),
        ("docker run --rm x ls", "docker run --rm x ls"),
        ("docker ps -a", "docker ps *"),
        ("make test", "make test"),
        ("uv run python x.py", "uv run python x.py"),
        ("npx eslint .", None),
        ("sqlite3 x.db .tables", None),
        ("sed -n 1p x", None),
        ("mytool build --fast", "mytool build --fast"),
        ("gh api repos/x", "gh api repos/x"),
    ],
)
def test_the_suggested_pattern_matches_every_command_of_the_line(line: str, pattern: str | None) -> None:
    parsed = parse_commands(line)
    assert suggest_pattern(parsed) == pattern
    if pattern is not None:
        assert all(fnmatchcase(text, pattern) for text in parsed.commands)


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "a", "b", " ", "\n", ";", "|", "&", "&&", "||", "(", ")", "{", "}", "$(", "`", "'", '"', "$x",
        "${x", ":-",
            "<<E", "E\n", "<<<", "<(", ">", "2>&1", "if ", "then ", "fi", "for ", "in ", "do ", "done",
        "case ", "esac",
            "bash -c ", "eval ", "env -S ", "sudo ", "[[ ", " ]]", "((", "))", "=", "*", "\\", "!",
        "function ", "$'",
        ]
    )
).map("".join)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), FRAGMENTS))
def test_no_text_breaks_the_parser_or_hides_a_command(line: str) -> None:
    parsed = parse_commands(line)
    assume("#" not in line and not line.endswith("\\"))
    longer = parse_commands(f"{line}; rm x")
    assert longer.opaque is not None or len(longer.commands) > len(parsed.commands)
    if longer.opaque is None:
        assert "rm x" in longer.commands
