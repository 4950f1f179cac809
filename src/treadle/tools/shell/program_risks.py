"""The risks of programs without verbs: one entry for each program, by its name."""

import re
from collections.abc import Mapping

from treadle.tools.shell.options import ProgramRisks

READ_ONLY_PROGRAMS = frozenset(
    {
        "ls", "cat", "head", "tail", "wc", "grep", "egrep", "fgrep", "rg", "pwd", "echo", "printf", "whoami", "id",
        "uname", "du", "df", "stat", "file", "tree", "which", "type", "ps", "uptime", "free", "diff", "cmp",
        "cut", "tr", "sort", "uniq", "comm", "nl", "tac", "rev", "paste", "column", "seq", "basename", "dirname",
        "realpath", "readlink", "md5sum", "sha1sum", "sha256sum", "jq", "true", "false", "sleep", "test", "cd",
        "mkdir", "touch", "date", "xxd", "od", "hexdump", "strings", "fd", "cal",
    }
)  # fmt: skip
"""Programs that only read and print, or create something empty. With options that do more they need approval."""
WITHOUT_RISKS = READ_ONLY_PROGRAMS | {
    "[", ":", "export", "declare", "local", "readonly", "typeset", "unset", "read", "shift", "return", "exit",
    "break",
    "continue", "wait", "jobs", "umask", "ulimit", "getopts", "let", "set", "shopt", "pushd", "popd", "dirs",
    "hash",
    "mapfile", "readarray", "mv", "rmdir", "gzip", "gunzip", "zcat", "zgrep", "bzip2", "xz", "arch", "nproc", "tty",
    "groups", "hostname", "logname", "who", "w", "last", "env", "printenv", "locale", "getconf", "lscpu", "lsblk",
    "lsof", "ss", "netstat", "ip", "pgrep", "pidof", "pstree", "expr", "factor", "fold", "fmt", "expand",
    "unexpand",
    "tsort", "join", "shuf", "base64", "base32", "cksum", "sha512sum", "b2sum", "ping", "host", "dig", "nslookup",
    "mktemp", "sync", "time", "kill", "pkill", "killall", "where", "look", "apropos", "whatis", "whereis", "numfmt",
    "pathchk", "nm", "size", "ldd", "addr2line", "c++filt", "egrep", "zdiff", "diff3", "sdiff", "watch",
}  # fmt: skip
"""Programs whose options do nothing that the program is not for, or are examined elsewhere."""
PROGRAM_ALIASES: Mapping[str, str] = {
    "gawk": "awk", "mawk": "awk", "nawk": "awk", "gmake": "make", "fdfind": "fd", "gtar": "tar", "bsdtar": "tar",
    "ex": "vim", "vi": "vim", "nvim": "vim", "gsed": "sed", "python3": "python", "pypy": "python",
    "pypy3": "python",
    "py": "python", "nodejs": "node", "pip3": "pip", "py.test": "pytest", "gfind": "find", "gxargs": "xargs",
    "genv": "env", "gtimeout": "timeout", "gnice": "nice", "gstdbuf": "stdbuf", "gnohup": "nohup", "gsort": "sort",
    "grm": "rm", "gcp": "cp", "gmv": "mv", "gdd": "dd", "gdate": "date", "guniq": "uniq", "gsplit": "split",
    "gtee": "tee", "gchmod": "chmod", "gchown": "chown", "gtruncate": "truncate", "gshred": "shred",
    "ggrep": "grep",
    "apt-cache": "apt", "apt-get": "apt", "g++": "gcc", "cc": "gcc", "c++": "gcc", "cpp": "gcc", "clang": "gcc",
    "clang++": "gcc", "docker-compose": "docker compose", "podman": "docker", "tofu": "terraform", "pnpm": "npm",
    "yarn": "npm", "ncat": "nc", "bunx": "npx", "uvx": "npx", "duckdb": "sqlite3", "mariadb": "mysql",
}  # fmt: skip
"""Other names of programs that have the same options."""
_PYTHON_NAME = re.compile(r"(?:python|pypy)[0-9.]+")
_MAKE_VARIABLE = re.compile(r"\w+[:+?!]*=(?!(?:\d+|y|n|yes|no|true|false|on|off)?\Z).*", re.DOTALL)
_REMOTE = re.compile(r"(?:[\w.-]+@)?[\w.-]+:.*|\w+://.*", re.DOTALL)
_STATEMENT = re.compile(r"(?is).*\b(?:insert|update|delete|drop|alter|create|replace|attach|vacuum)\b.*")
_FETCH_ONLY = re.compile(
    r"(?:-[sSfLkvIi]*X|--request) (?:GET|HEAD|OPTIONS)|(?:-[sSfLkvIi]*o|--output) (?:/dev/null|-)"
)
_PYTEST_HARMLESS = re.compile(
    r"-p no:[\w.-]+|--cov-report (?:term|term-missing)(?::skip-covered)?|-o (?:log_cli|xfail_strict)=\w+"
)

PROGRAM_RISKS: Mapping[str, ProgramRisks] = {
    "tar": ProgramRisks(
        escapes={"executes": "-I -F --checkpoint-action --to-command --use-compress-program --rsh-command"
                 " --info-script --new-volume-script --rmt-command"},
        risks={"deletes": "--delete --remove-files --recursive-unlink --unlink-first -U",
               "writes": "-P -C --absolute-names --directory --one-top-level --index-file --listed-incremental -g",
               "reads": "-T -X --files-from --exclude-from"},
        safe="--exclude --file --unlink",
        valued="fCTXVgKNbHL",
        bundled=True,
        risk_texts={"sends": re.compile(r"(?:--file=|-\w*f)?(?:\w+@)?[\w.-]+:(?!\\).*", re.DOTALL)},
    ),
    "rsync": ProgramRisks(
        escapes={"executes": "-e --rsh --rsync-path"},
        risks={"deletes": "--delete --delete-before --delete-during --delete-after --delete-excluded --del"
               " --delete-missing-args --remove-source-files",
               "reads": "--files-from --exclude-from --include-from --password-file -f --filter",
               "writes": "--log-file --backup-dir --partial-dir --temp-dir --write-batch --only-write-batch -T"},
        safe="--exclude --include --partial --backup",
        valued="fMTB",
        escape_text=re.compile(r" (-M|--remote-option)"),
        risk_texts={"sends": _REMOTE},
    ),
    "scp": ProgramRisks(escapes={"executes": "-o -S -F -D"}, risks={"sends": "-3 -J"}, valued="cilP"),
    "sftp": ProgramRisks(escapes={"executes": "-o -S -F -D -b"}, valued="cilPR"),
    "ssh": ProgramRisks(
        escapes={"executes": "-F -I"},
        risks={"sends": "-L -R -D -W -A -J -w -M -S", "writes": "-E", "reads": "-i -o"},
        valued="bcDEeiJLlmOopQRSWwBP",
        escape_text=re.compile(r"(?i)(ProxyCommand|LocalCommand|KnownHostsCommand|PKCS11Pro)"),
    ),
    "awk": ProgramRisks(
        escapes={"executes": "-f -i -l -E --file --exec --include --load --dump-variables --profile"
            " --pretty-print"},
        valued="Fv",
        escape_text=re.compile(r"system\s*\(|(?<!\|)\|(?!\|)|getline|@\w+\s*[(\"]|print.*>", re.DOTALL),
    ),
    "sort": ProgramRisks(
        escapes={"executes": "--compress-program", "writes": "-o --output"},
        risks={"reads": "--files0-from", "writes": "-T --temporary-directory"},
        valued="ktST",
    ),
    "find": ProgramRisks(
        risks={"deletes": "-delete", "writes": "-fprint -fprint0 -fprintf -fls", "reads": "-files0-from"},
        dashed=True,
    ),
    "rg": ProgramRisks(escapes={"executes": "--pre --hostname-bin"}, risks={"reads": "--ignore-file"}),
    "fd": ProgramRisks(escapes={"executes": "-x -X --exec --exec-batch"}, valued="edtEcj"),
    "man": ProgramRisks(escapes={"executes": "-P -H -C --pager --html --config-file --browser"},
    valued="kfeLMmsrRp"),
    "zip": ProgramRisks(
        risks={"deletes": "-m -d --move --delete", "writes": "-O --out -b --temp-path", "reads": "-@ -i@ -x@"},
        escape_text=re.compile(r" (-\w*TT|--unzip-command)"),
    ),
    "unzip": ProgramRisks(risks={"deletes": "-o", "writes": "-d -:"}),
    "make": ProgramRisks(
        escapes={"executes": "-E --eval"},
        risks={"executes": "-f --file --makefile -I --include-dir"},
        valued="fCIjloW",
        escape_text=re.compile(r" (\.?SHELL\w*|MAKEFLAGS|MAKE|\w+:?:?=.*\$)"),
        risk_texts={"executes": _MAKE_VARIABLE},
    ),
    "split": ProgramRisks(escapes={"executes": "--filter"}),
    "tee": ProgramRisks(escape_text=re.compile(r" [^-]| --? ")),
    "hash": ProgramRisks(escapes={"executes": "-p"}),
    "wget": ProgramRisks(
        escapes={"executes": "-e --use-askpass --execute --config"},
        risks={"sends": "--post-data --post-file --body-data --body-file --method --header --user --password"
               " --http-user --http-password --load-cookies --certificate --private-key",
               "writes": "-O -o -a -P -x -r -m -c --output-document --output-file --append-output"
               " --directory-prefix"
               " --recursive --mirror --save-cookies --warc-file --force-directories --continue --hsts-file",
               "reads": "-i -B --input-file --base --ca-certificate --netrc",
               "deletes": "--delete-after --unlink"},
        valued="OoaPUtTwQDARIXiBle",
        operands=1,
    ),
    "curl": ProgramRisks(
        escapes={"executes": "-K --config --engine", "writes": "-O -D --remote-name --remote-name-all --dump-header"
                 " --cookie-jar"},
        risks={"sends": "-d -F -T -X -Q -u -b --data --data-ascii --data-binary --data-raw --data-urlencode"
            " --url-query"
               " --form --form-string --json --upload-file --request --quote --prequote --postquote --user --cookie"
               " --mail-from --mail-rcpt --mail-auth --proxy-user --oauth2-bearer --proxy-header --proto-redir"
               " --location-trusted --append --telnet-option --request-target",
               "reads": "-n -x -E --netrc --netrc-file --netrc-optional --url --next -: --proxy --preproxy --socks4"
               " --socks4a --socks5 --socks5-hostname --connect-to --resolve --unix-socket --abstract-unix-socket"
               " --doh-url --dns-servers --interface --cert --key --pubkey --cacert --capath --crlfile --variable"
               " --expand --aws-sigv4 --delegation --ipfs-gateway --proxy-cert --proxy-key --haproxy-protocol"
               " --dns-interface --dns-ipv4-addr --dns-ipv6-addr --proxy-cacert --proxy-capath",
               "writes": "-o -c --output --output-dir --trace --trace-ascii --stderr --etag-save --etag-compare"
               " --hsts"
               " --alt-svc --libcurl --create-dirs --remote-header-name -J --ssl-sessions --vars"},
        safe="--location --ssl --proto --trace-time",
        valued="AbcCdeEFhHKmoPQrtTuUwxXyYzD",
        long_valued="--max-time --connect-timeout --header --user-agent --referer --retry --retry-delay --write-out"
        " --range --limit-rate --max-filesize --max-redirs --proto --proto-default --retry-max-time --speed-limit"
        " --speed-time --tls-max --ciphers --expect100-timeout --keepalive-time --local-port --rate --time-cond"
        " --continue-at --data --form --json --request --output --cookie --user",
        escape_text=re.compile(r" (-\w*o|--output)(?!\w)(?![= ]?(/dev/null|-)( |$))| -\w*o\w"),
        risk_texts={"reads": re.compile(r"(?:-\w*[HhwA]|--(?:header|write-out)=)?@.*", re.DOTALL)},
        harmless=_FETCH_ONLY,
        operands=1,
    ),
    "gcc": ProgramRisks(
        risks={"executes": "-Xlinker -Wl -fuse-ld", "writes": "-dumpdir -save-temps -MF"},
        dashed=True,
        escape_text=re.compile(r" (-wrapper|-B|-fplugin|-specs|--specs|-load|@)"),
    ),
    "nc": ProgramRisks(
        escapes={"executes": "-e -c --exec --sh-exec --lua-exec"}, risks={"sends": "-l -U"},
            valued="IiMmOPpqsTVWwXx"
    ),
    "strace": ProgramRisks(
        risks={"writes": "-o --output", "executes": "-E --env -p"},
        valued="oespPuEaIOSbX",
        escape_text=re.compile(r" (-\w*o ?|--output[= ])[|!]"),
    ),
    "openssl": ProgramRisks(
        only_safe=True, dashed=True, escape_text=re.compile(r" -(engine|provider|provider-path|config)\b")
    ),
    "tcpdump": ProgramRisks(escapes={"executes": "-z", "writes": "-w -W"}, valued="BCcDEFGijMrsTVy"),
    "dmesg": ProgramRisks(escapes={"deletes": "-C -c --clear --read-clear"}, valued="lfn"),
    "uniq": ProgramRisks(
        escape_text=re.compile(r"^( -\S+)* [^- ]\S* [^- ]"), valued="fsw", operands=1, operand_risk="writes"
    ),
    "xxd": ProgramRisks(
        escape_text=re.compile(r"^( -\S+)* [^- ]\S* [^- ]"), valued="cglosnR", operands=1, operand_risk="writes"
    ),
    "date": ProgramRisks(escapes={"writes": "-s --set"}, valued="dfrI"),
    "file": ProgramRisks(risks={"writes": "-C --compile", "reads": "-m --magic-file"}),
    "tree": ProgramRisks(escapes={"writes": "-o"}, valued="LPIH"),
    "sqlite3": ProgramRisks(
        only_safe=True,
        safe="-json -csv -header -noheader -column -line -list -table -box -markdown -readonly -bail -batch"
            " -separator",
        dashed=True,
        escape_text=re.compile(r"\.(sh|sys|load|import|once|output|excel|backup|save|log|archive)"),
        risk_texts={"writes": _STATEMENT},
    ),
    "psql": ProgramRisks(
        risks={"executes": "-c --command -f --file", "writes": "-o -L --output --log-file -v --set"},
        harmless=re.compile(r"(?is)(?:-\w*c|--command) \s*(?:select|explain|show|\\d)\b(?!.*;\s*\S).*"),
        valued="cfdhpUvoLRFPT",
        escape_text=re.compile(r"(?i)\\[!ogw]|\\copy|program"),
    ),
    "mysql": ProgramRisks(
        risks={"executes": "-e --execute --init-command", "writes": "--tee"},
        harmless=re.compile(r"(?is)(?:-\w*e|--execute) \s*(?:select|explain|show|describe)\b(?!.*;\s*\S).*"),
        valued="ehDPSu",
        escape_text=re.compile(r"\\!|\\T|system|tee"),
    ),
    "gdb": ProgramRisks(
        only_safe=True, escape_text=re.compile(r"shell|!|python|pipe|source|\||-x |--command|make")
    ),
    "vim": ProgramRisks(only_safe=True, escape_text=re.compile(r"!|system|py|lua|perl|ruby|source|-S|-u|-w")),
    "bat": ProgramRisks(escapes={"executes": "--pager --diff"}),
    "journalctl": ProgramRisks(
        risks={"reads": "-D --directory --file --root --image -M --machine",
            "writes": "--update-catalog --setup-keys"},
        escape_text=re.compile(r" --(vacuum|rotate|flush|relinquish)"),
    ),
    "sudo": ProgramRisks(risks={"executes": "-s -i -e -C -D -R -T --shell --login --edit --chroot --chdir"}),
    "doas": ProgramRisks(risks={"executes": "-s -C"}),
    "chroot": ProgramRisks(),
    "rm": ProgramRisks(risks={"deletes": "-r -R -d --recursive --dir --no-preserve-root"}),
    "cp": ProgramRisks(risks={"deletes": "--remove-destination"}),
    "ln": ProgramRisks(risks={"deletes": "-f -F --force"}),
    "chmod": ProgramRisks(risks={"writes": "-R --recursive"}),
    "chown": ProgramRisks(risks={"writes": "-R --recursive"}),
    "chgrp": ProgramRisks(risks={"writes": "-R --recursive"}),
    "dd": ProgramRisks(risk_texts={"writes": re.compile(r"of=.*", re.DOTALL)}),
    "yq": ProgramRisks(risks={"writes": "-i --inplace -s --split-exp", "reads": "--from-file --split-exp-file"}),
    # Interpreters: the script is what they are for, and its options are those of an unknown program.
    "python": ProgramRisks(
        risks={"executes": "-c -m -i"}, only_safe=True, safe="-u -B -b -d -E -I -O -q -R -s -S -v -V -h -W -X",
            valued="WX"
    ),
    "node": ProgramRisks(
        risks={"executes": "-e -p -r -i --eval --print --require --import --loader"}, only_safe=True,
        safe="-v -h --test --check -c --no-warnings --trace-warnings",
    ),
    "ruby": ProgramRisks(risks={"executes": "-e -r -I -n -p -i"}, only_safe=True, safe="-v -w -c"),
    "perl": ProgramRisks(risks={"executes": "-e -E -M -m -I -n -p -i"}, only_safe=True, safe="-v -w -c"),
    "php": ProgramRisks(risks={"executes": "-r -R -B -E -F -f -S -d -a"}, only_safe=True, safe="-v -l -i -m"),
    # Checks and tests: what they run and rewrite is what they are for.
    "pytest": ProgramRisks(
        risks={"executes": "-p -c -o --config-file --rootdir --confcutdir --override-ini --pyargs --pdbcls --tx"
            " -d --px"
               " --rsyncdir --inifile --plugin",
               "deletes": "--basetemp",
               "writes": "--junitxml --junit-xml --log-file --report-log --html --resultlog --debug --cov-report"
               " --json-report-file --csv --alluredir --profile-svg --snapshot-update",
               "reads": "--cov-config --deselect-from-file --env-file --envfile",
               "sends": "--pastebin"},
        safe="--co --cov --collect-only --pdb --deselect",
        valued="kmnpcoWrd",
        harmless=_PYTEST_HARMLESS,
    ),
    "ruff": ProgramRisks(
        only_safe=True,
        safe="--quiet -q --verbose -v --select --ignore --extend-select --line-length --output-format --statistics"
        " --diff --check --no-cache --preview --target-version --show-files --show-settings --exit-zero -n",
    ),
    "mypy": ProgramRisks(
        only_safe=True,
        safe="--strict -v -p -m --package --module --no-incremental --ignore-missing-imports --show-error-codes"
            " --pretty"
        " --no-error-summary --follow-imports --python-version --disallow-untyped-defs --check-untyped-defs",
        valued="pm",
    ),
    "black": ProgramRisks(only_safe=True, safe="--check --diff -q -v --quiet --verbose -l --line-length -t"
    " --fast --color"),
    "isort": ProgramRisks(only_safe=True, safe="--check -c --check-only --diff --profile -q -v --quiet --verbose"),
    "flake8": ProgramRisks(only_safe=True, safe="--max-line-length --select --ignore --extend-ignore -q -v"
    " --count --statistics"),
    "pylint": ProgramRisks(only_safe=True, safe="--disable --enable -E --errors-only -j --score --reports"
    " --max-line-length"),
    "pyright": ProgramRisks(only_safe=True, safe="--outputjson --stats --warnings --level"),
    "basedpyright": ProgramRisks(only_safe=True, safe="--outputjson --stats --warnings --level"),
    "tsc": ProgramRisks(only_safe=True, safe="--noEmit -noEmit --strict --pretty --skipLibCheck --watch -w"
    " --listFiles -v -h"),
    "eslint": ProgramRisks(only_safe=True, safe="--quiet --max-warnings --ext --cache --no-cache --color"
    " --no-color"),
    "prettier": ProgramRisks(only_safe=True, safe="--check -c -l --list-different --log-level --loglevel"),
    "jest": ProgramRisks(
        only_safe=True,
        safe="--watch --watchAll --coverage --verbose --silent -t --testNamePattern --testPathPattern"
            " --runInBand -i --ci"
        " --no-cache --bail -b --findRelatedTests --passWithNoTests --onlyFailures -o --maxWorkers -w --listTests"
        " --detectOpenHandles --forceExit --runTestsByPath --json --colors --no-coverage --testPathPatterns",
    ),
    "vitest": ProgramRisks(
        only_safe=True,
        safe="--run --watch --coverage -t --testNamePattern --silent --bail --passWithNoTests --no-color --changed"
        " --retry --no-file-parallelism --maxWorkers --hideSkippedTests --reporter",
        harmless=re.compile(r"--reporter (?:verbose|dot|basic|default|json|tap)"),
    ),
    "next": ProgramRisks(only_safe=True, safe="--dir -d --quiet --strict --turbo --turbopack -p --port --debug"
    " --no-lint"),
    "rspec": ProgramRisks(only_safe=True, safe="--fail-fast -e --example --tag -t --only-failures --seed --order"
    " -b"),
    "rubocop": ProgramRisks(only_safe=True, safe="--format -f --parallel -P --only --except --fail-level --lint"
    " -l -D"),
    "mvn": ProgramRisks(
        only_safe=True, dashed=True,
        safe="-q -o -B -e -U -X -am -amd -pl -T -ntp -ff -fae --quiet --offline --batch-mode"
            " --no-transfer-progress",
    ),
    "gradle": ProgramRisks(
        only_safe=True,
        safe="--tests -q --quiet --info --offline --stacktrace --no-daemon --console --rerun-tasks --parallel"
            " --continue",
    ),
    "npx": ProgramRisks(only_safe=True, safe="-y --yes --no-install -q --quiet", runs_after=0),
}  # fmt: skip


def canonical_name(program: str) -> str:
    """Return the name under which the risks of a program are listed."""
    name = program.rpartition("/")[2] or program
    if name in ("gradlew", "mvnw"):
        return name.removesuffix("w")
    return "python" if _PYTHON_NAME.fullmatch(name) else PROGRAM_ALIASES.get(name, name)
