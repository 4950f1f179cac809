"""The risks of git: one entry for the program, and one for each verb that needs its own."""

import re
from collections.abc import Mapping

from treadle.tools.shell.options import ProgramRisks

ADDRESS = re.compile(
    r"(?:\w+\+)?\w+://.*|[^/\s]+@[^/\s]+:.*|(?:\.{0,2}|~)/.*|(?:file|git|github|gitlab):.*", re.DOTALL
)
"""An operand that names another repository, server or folder."""
_DISCARDED_PATHS = re.compile(r"--|\.|\./|:/|:\(.*|.*\.[A-Za-z]\w*", re.DOTALL)

GIT_RISKS: Mapping[str, ProgramRisks] = {
    "git": ProgramRisks(
        escapes={
            "executes": "--upload-pack --receive-pack --exec --extcmd --ext-diff --submodule --ignore-submodules"
            " --recurse-submodules --help",
            "writes": "--output",
        },
        risks={"reads": "--pathspec-from-file --no-index"},
        safe="--exec-path",
        valued="Cc",
        verbs={
            "safe": "status diff log show blame annotate shortlog describe rev-parse rev-list ls-files ls-tree"
            " cat-file"
            " reflog grep name-rev merge-base count-objects for-each-ref show-ref show-branch diff-tree range-diff"
            " cherry var version check-ignore check-attr check-ref-format verify-commit verify-tag merge-tree"
            " add am"
            " apply bisect branch bundle checkout cherry-pick commit commit-tree fetch format-patch fsck"
            " hash-object"
            " init merge mv notes pack-refs pull rebase reset revert sparse-checkout stash switch tag symbolic-ref"
            " update-index worktree remote gc",
            "deletes": "clean rm restore update-ref",
            "writes": "config",
            "sends": "push",
            "reads": "clone ls-remote",
        },
    ),
    "git clone": ProgramRisks(escapes={"executes": "-c -u --config --template"}, valued="bjo"),
    "git init": ProgramRisks(escapes={"executes": "--template"}),
    "git grep": ProgramRisks(escapes={"executes": "-O --open-files-in-pager"}, valued="eABCm"),
    "git describe": ProgramRisks(escapes={"executes": "--dirty --broken"}),
    "git rebase": ProgramRisks(
        escapes={"executes": "-x --continue --skip --edit-todo"}, risks={"executes": "-s --strategy"}, valued="sXC"
    ),
    "git merge": ProgramRisks(risks={"executes": "-s --strategy", "reads": "-F --file"}, valued="smXF"),
    "git cherry-pick": ProgramRisks(risks={"executes": "--strategy"}, valued="mX"),
    "git revert": ProgramRisks(risks={"executes": "--strategy"}, valued="mX"),
    "git pull": ProgramRisks(
        risks={"executes": "-s --strategy", "deletes": "-f --force"}, valued="sXj", risk_texts={"reads": ADDRESS}
    ),
    "git fetch": ProgramRisks(risks={"deletes": "-f --force"}, valued="jo", risk_texts={"reads": ADDRESS}),
    "git push": ProgramRisks(
        risks={
            "deletes": "-f -d --force --force-with-lease --force-if-includes --delete --mirror --prune",
            "sends": "--repo --all --tags --branches",
        },
        valued="o",
        risk_texts={"deletes": re.compile(r"[+:].*"), "sends": ADDRESS},
    ),
    "git commit": ProgramRisks(risks={"reads": "-F -t --file --template"}, valued="mFtCc"),
    "git tag": ProgramRisks(risks={"deletes": "-d -f --delete --force", "reads": "-F --file"}, valued="mFu"),
    "git branch": ProgramRisks(
        risks={
            "deletes": "-d -D -f -M --delete --force",
            "writes": "-m -c -C -u --move --copy --edit-description --set-upstream-to --unset-upstream",
        },
        safe="--color --column --contains --merged",
        valued="u",
    ),
    "git checkout": ProgramRisks(
        risks={"deletes": "-f -B --force --ours --theirs -p --patch"},
        valued="b",
        risk_texts={"deletes": _DISCARDED_PATHS},
        operands=1,
        operand_risk="deletes",
    ),
    "git switch": ProgramRisks(risks={"deletes": "-f -C --force --discard-changes --force-create"}, valued="c"),
    "git restore": ProgramRisks(
        risks={"deletes": "-W --worktree"},
        valued="s",
        risk_texts={"deletes": re.compile(r"\.|\./|:/|:\(.*|\*.*", re.DOTALL)},
    ),
    "git reset": ProgramRisks(risks={"deletes": "--hard --merge --keep"}),
    "git clean": ProgramRisks(risks={"deletes": "-f -d -x -X --force"}, valued="e"),
    "git rm": ProgramRisks(risks={"deletes": "-r -f --force"}),
    "git stash": ProgramRisks(
        risks={"deletes": "-p --patch"}, valued="m", risk_texts={"deletes": re.compile("drop|clear")}
    ),
    "git reflog": ProgramRisks(risk_texts={"deletes": re.compile("expire|delete|drop|write")}),
    "git remote": ProgramRisks(
        risk_texts={
            "writes": re.compile("add|set-url|set-head|set-branches|rename|update"),
            "deletes": re.compile("remove|rm|prune"),
        }
    ),
    "git worktree": ProgramRisks(
        risks={"deletes": "-f -B --force"},
        risk_texts={"deletes": re.compile("remove|prune"), "writes": re.compile("move")},
    ),
    "git notes": ProgramRisks(
        risks={"reads": "-F --file"}, risk_texts={"deletes": re.compile("remove|prune")}, valued="mFCc"
    ),
    "git gc": ProgramRisks(risks={"deletes": "--prune --aggressive"}),
    "git bundle": ProgramRisks(risk_texts={"writes": re.compile("create")}),
    "git format-patch": ProgramRisks(
        risks={"writes": "-o --output-directory", "reads": "--signature-file"}, valued="o"
    ),
    "git apply": ProgramRisks(risks={"writes": "--unsafe-paths --directory"}),
    "git symbolic-ref": ProgramRisks(risks={"deletes": "-d --delete"}, operands=1, operand_risk="writes"),
    "git update-ref": ProgramRisks(risks={"deletes": "-d --stdin"}),
    "git config": ProgramRisks(
        risks={
            "writes": "-e --edit --add --replace-all --rename-section",
            "reads": "-f --file --blob",
            "deletes": "--unset --unset-all --remove-section",
        },
        valued="f",
        operands=1,
        operand_risk="writes",
        marks_first=True,
    ),
}
