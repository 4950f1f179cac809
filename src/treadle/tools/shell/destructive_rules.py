"""Commands whose effect cannot be undone, and that an explicit rule can allow. Each rule carries its examples."""

import re
from posixpath import basename, normpath

from treadle.tools.shell.git import split_verb
from treadle.tools.shell.rules import CommandRule
from treadle.tools.shell.simple_commands import SimpleCommand

_REMAKEABLE = frozenset(
    {
        "build", "dist", "target", "out", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache",
        ".ruff_cache",
        ".cache", ".tox", ".nox", "coverage", "htmlcov", ".next", ".nuxt", ".turbo", ".parcel-cache", ".gradle",
        ".eggs", "tmp", "temp", "obj", "_build", ".hypothesis",
    }
)  # fmt: skip
"""Folders that a build or a test makes again."""
_EVERYTHING_HERE = re.compile(r"(?:\./)?(?:\*|\.\*|\.\[.*\]\*)")
_SQL = re.compile(
    r"\b(?:drop\s+(?:table|database|schema|view|index|user|role|collection)|truncate\b|delete\s+from|alter\s+table\s+\S+"
    r"\s+drop|flushall|flushdb|dropdatabase)",
    re.IGNORECASE,
)
_DELETERS = frozenset({"rm", "shred", "unlink", "truncate", "rmdir", "srm"})


def _removes_folders(call: SimpleCommand) -> bool:
    if any(_EVERYTHING_HERE.fullmatch(operand) for operand in call.operands):
        return True
    is_recursive = call.has("-r", "-R") or any(
        len(word) > 3 and "--recursive".startswith(word) for word in call.options
    )
    return is_recursive and not all(_is_remakeable(operand) for operand in call.operands)


def _is_remakeable(path: str) -> bool:
    plain = normpath(path)
    return basename(plain) in _REMAKEABLE or plain.startswith("/tmp/") or plain.endswith(".egg-info")


def _discards_work(call: SimpleCommand) -> bool:
    verb, words = split_verb(call.arguments)
    letters = "".join(word[1:] for word in words if word.startswith("-") and not word.startswith("--"))

    def has(*names: str) -> bool:
        return any(
            word.startswith("--") and len(word) > 3 and name.startswith(word.partition("=")[0])
            for word in words
            for name in names
        )

    operands = [word for word in words if not word.startswith("-")]
    match verb:
        case "clean":
            return ("f" in letters or has("--force")) and not ("n" in letters or has("--dry-run"))
        case "reset":
            return has("--hard", "--merge", "--keep")
        case "checkout":
            is_forced = "f" in letters or "B" in letters or has("--force")
            return is_forced or "--" in words or any(word in (".", "./", ":/", "*") for word in operands)
        case "switch":
            return "f" in letters or "C" in letters or has("--force", "--discard-changes", "--force-create")
        case "restore":
            return not (has("--staged") or "S" in letters) or has("--worktree") or "W" in letters
        case "branch":
            return bool({"D", "M"} & set(letters)) or (
                ("d" in letters or has("--delete")) and _is_forced(letters, words)
            )
        case "stash" | "reflog":
            return operands[:1] in (["drop"], ["clear"], ["expire"], ["delete"])
        case "tag":
            return "d" in letters or has("--delete")
        case "worktree":
            return operands[:1] == ["remove"] and _is_forced(letters, words)
        case "rm":
            return "r" in letters and ("f" in letters or has("--force"))
        case _:
            return False


def _is_forced(letters: str, words: list[str]) -> bool:
    return "f" in letters or "--force" in words


def _finds_and_deletes(call: SimpleCommand) -> bool:
    return "-delete" in call.arguments


def _prunes(call: SimpleCommand) -> bool:
    operands = call.operands
    if "prune" in operands[:3] or operands[:2] == ("volume", "rm"):
        return True
    is_down = "down" in operands[:2] and (call.program == "docker-compose" or operands[:1] == ("compose",))
    return is_down and call.has("-v", "--volumes", "--rmi")


DESTRUCTIVE_RULES = (
    CommandRule(
        ("rm",),
        "removes folders with everything in them",
        ("rm -rf .", "rm -rf src", "rm -r ./x", "sudo rm -fr data", "rm --recursive x", "rm --rec x", "rm *",
            "rm -f ./*",
         "rm -rf ../x", "timeout 5 rm -rf src", "grm -rf src", "rm -rf build src"),
        ("rm x", "rm -f x.o", "rm -rf build", "rm -rf ./node_modules dist/", "rm -rf /tmp/x", "rm -v a.c b.c"),
        _removes_folders,
    ),
    CommandRule(
        ("git",),
        "discards work that is not committed, or commits that no branch keeps",
        ("git clean -fdx", "git clean -xdf", "git reset --hard", "git reset --hard HEAD~3", "git checkout -- .",
         "git checkout .", "git checkout -f main", "git restore .", "git restore x.py", "git branch -D x",
         "git branch -d -f x", "git stash drop", "git stash clear", "git switch --discard-changes main",
         "git tag -d v1",
         "git -C sub reset --hard", "git worktree remove --force x", "git rm -rf src", "git reset --har",
         "git branch --delete --force x", "git checkout HEAD -- x"),
        ("git clean -n", "git clean -ndx", "git reset HEAD x", "git reset --soft HEAD~1", "git checkout main",
         "git checkout -b x", "git restore --staged x", "git branch -d x", "git branch x", "git stash",
         "git stash pop",
         "git switch main", "git tag v1", "git rm x", "git log --hard"),
        _discards_work,
    ),
    CommandRule(
        ("find",),
        "removes everything that it finds",
        ("find . -delete", "find . -name '*.pyc' -delete", "gfind . -delete"),
        ("find . -name delete", "find . -type f"),
        _finds_and_deletes,
    ),
    CommandRule(
        tuple(sorted(_DELETERS)),
        "removes files that no reviewer has seen",
        ("find . -exec rm {} +", "find . -name x | xargs rm", "ls | xargs -n1 rm -f",
            "find . -execdir shred {} ';'",
         "parallel rm"),
        ("rm x", "find . -exec ls {} +", "ls | xargs cat"),
        lambda call: bool({"find", "gfind", "xargs", "gxargs", "parallel"} & set(call.within)),
    ),
    CommandRule(
        ("dd", "truncate", "shred"),
        "overwrites a file",
        ("dd if=/dev/zero of=x", "truncate -s 0 x", "truncate --size=0 x"),
        ("dd if=x of=/dev/null", "dd if=x bs=1", "truncate --help"),
        lambda call: (call.program not in ("dd", "gdd")
        and not call.has("--help", "--version"))
        or any(word.startswith("of=") and word != "of=/dev/null" for word in call.arguments),
    ),
    CommandRule(
        ("chmod", "chown", "chgrp", "setfacl"),
        "changes the rights of everything in a folder",
        ("chmod -R 777 .", "chown -R me src", "chmod --recursive a+w x"),
        ("chmod +x x", "chown me x", "chmod -x x"),
        lambda call: call.has("-R", "--recursive"),
    ),
    CommandRule(
        ("rsync",),
        "removes what is not at the source",
        ("rsync -a --delete a/ b/", "rsync -a --delete-after a b", "rsync --remove-source-files a b",
            "rsync --del a b"),
        ("rsync -a a b", "rsync -an --exclude=x a b"),
        lambda call: any(word.startswith(("--del", "--remove-source")) for word in call.options),
    ),
    CommandRule(
        ("kubectl", "helm", "oc"),
        "removes resources of a cluster",
        ("kubectl delete pod x", "kubectl -n x delete ns y", "kubectl drain node", "helm uninstall x"),
        ("kubectl get pods", "kubectl describe pod delete", "helm list"),
        lambda call: any(word in ("delete", "drain", "uninstall") for word in call.operands[:3])
        and not any(word in ("get", "describe", "logs", "explain") for word in call.operands[:1]),
    ),
    CommandRule(
        ("docker", "podman", "docker-compose"),
        "removes containers, images or volumes with their data",
        ("docker system prune", "docker system prune -af", "docker volume rm x", "docker compose down -v",
         "docker image prune", "docker-compose down --volumes", "podman volume prune"),
        ("docker ps", "docker compose down", "docker rm x", "docker volume ls"),
        _prunes,
    ),
    CommandRule(
        ("psql", "mysql", "mariadb", "sqlite3", "duckdb", "mongosh", "mongo", "redis-cli", "clickhouse-client",
            "cqlsh"),
        "deletes data of a database",
        ("psql -c 'DROP TABLE x'", "sqlite3 x.db 'delete from t'", "mysql -e 'truncate t'", "redis-cli FLUSHALL",
         "psql --command='drop  database x' y"),
        ("psql -c 'select 1'", "sqlite3 x.db 'select dropped from t'", "redis-cli get x"),
        lambda call: any(_SQL.search(word) for word in call.arguments),
    ),
    CommandRule(
        ("dropdb", "dropuser", "rails", "rake", "bundle", "heroku", "vagrant", "aws", "gcloud", "az", "gsutil"),
        "deletes data or what was set up",
        ("dropdb x", "rails db:drop", "bundle exec rails db:reset", "aws s3 rm s3://x --recursive",
            "aws s3 rb s3://x",
         "gcloud compute instances delete x", "vagrant destroy -f", "rake db:schema:load db:drop"),
        ("rails db:migrate", "aws s3 ls", "gcloud compute instances list", "vagrant up", "bundle exec rails test"),
        lambda call: call.program in ("dropdb", "dropuser")
        or any(
            word in ("db:drop", "db:reset", "db:purge", "destroy", "delete", "rb", "apps:destroy")
            or word.startswith(("delete-", "terminate-"))
            or (word == "rm" and call.has("--recursive", "-r"))
            for word in call.operands
        ),
    ),
    CommandRule(
        ("gh", "npm", "cargo"),
        "removes what is published",
        ("gh repo delete x --yes", "gh release delete v1", "npm unpublish x", "cargo yank x", "gh issue delete 5"),
        ("gh repo view x", "gh release list", "npm publish", "gh issue close 5"),
        lambda call: any(word in ("delete", "delete-asset", "unpublish", "yank") for word in call.operands[:2]),
    ),
)  # fmt: skip
