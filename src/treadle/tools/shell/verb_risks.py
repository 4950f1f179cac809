"""The risks of programs whose first operand says what they do: one entry for the program, and one for each verb
that needs its own, under `program verb`. Options that are not listed as safe are not known."""

import re
from collections.abc import Mapping

from treadle.tools.shell.git_risks import ADDRESS
from treadle.tools.shell.options import ProgramRisks, VerbKind

_RUNNER = ProgramRisks(only_safe=True, runs_after=0)
_DOCKER_SAFE = (
    "-a --all -q --quiet -f --filter --format --no-trunc -n --last -l --latest -s --size --tail --since --until"
    " -t --timestamps --follow --details --no-stream --type"
)
_GH_SAFE = (
    "-R --repo -L --limit -s --state -q --jq -t --template --json -a --assignee -A --author -l --label -S --search"
    " -m --milestone -B --base -H --head -d --draft -c --comments --log --log-failed -j --job --exit-status -i"
    " --interval --workflow -b --branch -e --event -u --user --name-only --patch --color --verbose -v --owner"
    " --visibility --language --topic --source --archived --order --sort --required --compact"
)
_KUBECTL_SAFE = (
    "-n --namespace -A --all-namespaces -o --output -l --selector -w --watch --show-labels --sort-by"
    " --field-selector"
    " --no-headers -c --container --tail --since --previous -p --all-containers --timestamps --limit-bytes --prefix"
    " --containers --short --client --recursive -f --follow"
)
_NPM_SAFE = (
    "-D -E -S -O -P --save-dev --save --save-exact --silent -s -q --quiet --no-audit --no-fund --legacy-peer-deps"
    " --omit --include --frozen-lockfile --no-frozen-lockfile --prefer-offline --offline --production --prod"
    " --ignore-scripts --no-save --if-present --workspaces --workspace -w -r --recursive"
)


def _gh(verbs: Mapping[VerbKind, str]) -> ProgramRisks:
    return ProgramRisks(only_safe=True, safe=_GH_SAFE, valued="RLsqtaAlSmBHjibeu", verbs=verbs)


def _gh_write(safe: str) -> ProgramRisks:
    return ProgramRisks(
        only_safe=True,
        risks={"reads": "-F --body-file --notes-file --input", "executes": "-w --web -e --editor"},
        safe=safe,
        valued="tblamRpBHr",
        long_valued="--title --body --label --assignee --milestone --repo --project --base --head --reviewer"
        " --remote-name"
        " --org --fork-name",
    )


def _docker(verbs: Mapping[VerbKind, str]) -> ProgramRisks:
    return ProgramRisks(only_safe=True, safe=_DOCKER_SAFE, verbs=verbs)


def _docker_runner(safe: str) -> ProgramRisks:
    return ProgramRisks(only_safe=True, safe=safe, runs_after=1)


VERB_RISKS: Mapping[str, ProgramRisks] = {
    "gh": _gh({
        "safe": "issue pr run release repo workflow label search status gist cache project ruleset org version",
        "sends": "api",
        "executes": "extension alias codespace browse",
        "reads": "auth secret variable ssh-key gpg-key config",
    }),
    "gh issue": _gh({
        "safe": "list view status",
        "deletes": "delete",
        "sends": "create edit close reopen comment lock unlock pin unpin transfer develop",
    }),
    "gh issue create": _gh_write(
        "-t --title -b --body -l --label -a --assignee -m --milestone -R --repo -p --project"
    ),
    "gh issue comment": _gh_write("-b --body -R --repo"),
    "gh pr": _gh({
        "safe": "list view status diff checks",
        "writes": "checkout",
        "sends": "create edit close reopen comment merge review ready lock unlock update-branch",
    }),
    "gh pr create": _gh_write(
        "-t --title -b --body -l --label -a --assignee -m --milestone -R --repo -B --base -H --head -d --draft -f"
        " --fill -r --reviewer --dry-run"
    ),
    "gh pr comment": _gh_write("-b --body -R --repo"),
    "gh run": _gh({
        "safe": "list view watch", "executes": "rerun", "deletes": "cancel delete", "writes": "download",
    }),
    "gh release": _gh({
        "safe": "list view",
        "sends": "create edit upload",
        "deletes": "delete delete-asset",
        "writes": "download",
    }),
    "gh repo": _gh({
        "safe": "list view",
        "sends": "create edit fork rename sync archive unarchive autolink deploy-key",
        "deletes": "delete",
        "writes": "clone set-default",
    }),
    "gh repo fork": _gh_write("--remote --remote-name --org --clone --fork-name --default-branch-only"),
    "gh workflow": _gh({"safe": "list view", "executes": "run enable disable"}),
    "gh label": _gh({"safe": "list", "sends": "create edit clone", "deletes": "delete"}),
    "gh gist": _gh({"safe": "list view", "sends": "create edit rename", "deletes": "delete", "writes": "clone"}),
    "gh cache": _gh({"safe": "list", "deletes": "delete"}),
    "gh project": _gh({"safe": "list view item-list field-list"}),
    "npm": ProgramRisks(
        escapes={"executes": "--script-shell --node-options --userconfig --globalconfig --shell"},
        only_safe=True,
        safe=f"{_NPM_SAFE} -l --long --json --depth --all -a --filter",
        valued="w",
        verbs={
            "safe": "ls list ll la view info show outdated audit why explain fund doctor help search query"
            " prefix root"
            " bin version ping licenses",
            "executes": "run run-script test t tst start stop restart install i ci add exec x rebuild init"
            " create dlx"
            " update up upgrade link ln install-test prune dedupe node build lint dev import fetch",
            "sends": "publish login logout adduser owner access team token dist-tag deprecate star profile hook"
            " org",
            "deletes": "uninstall remove rm un unpublish cache store",
            "writes": "config set pkg pack shrinkwrap patch",
        },
    ),
    "npm install": ProgramRisks(only_safe=True, safe=_NPM_SAFE, valued="w", risk_texts={"reads": ADDRESS}),
    "npm i": ProgramRisks(only_safe=True, safe=_NPM_SAFE, valued="w", risk_texts={"reads": ADDRESS}),
    "npm add": ProgramRisks(only_safe=True, safe=_NPM_SAFE, valued="w", risk_texts={"reads": ADDRESS}),
    "npm ci": ProgramRisks(only_safe=True, safe=_NPM_SAFE),
    "npm exec": ProgramRisks(only_safe=True, safe="-y --yes", runs_after=0),
    "npm x": ProgramRisks(only_safe=True, safe="-y --yes", runs_after=0),
    "npm dlx": _RUNNER,
    "npm run": ProgramRisks(only_safe=True, safe=_NPM_SAFE, valued="w"),
    "npm test": ProgramRisks(only_safe=True, safe=_NPM_SAFE, valued="w"),
    "pip": ProgramRisks(
        escapes={"executes": "--python --config-settings"},
        only_safe=True,
        safe="-q --quiet -v --verbose --outdated -o --format --local -l --user --no-input --pre"
        " --disable-pip-version-check --no-cache-dir",
        verbs={
            "safe": "list show freeze check index inspect debug help",
            "executes": "install download wheel",
            "deletes": "uninstall cache",
            "writes": "config lock",
            "reads": "hash",
        },
    ),
    "pip install": ProgramRisks(
        risks={
            "reads": "-r -c -i -f --requirement --constraint --index-url --extra-index-url --find-links"
            " --trusted-host --proxy --cert",
            "writes": "-t --target --prefix --root --src",
            "executes": "-e --editable",
        },
        only_safe=True,
        safe="-q --quiet -v --verbose -U --upgrade --no-deps --pre --no-input --user --no-cache-dir --dry-run"
        " --disable-pip-version-check",
        risk_texts={"reads": ADDRESS},
    ),
    "uv": ProgramRisks(
        only_safe=True,
        safe="-q --quiet -v --verbose --offline --frozen --locked --no-progress",
        verbs={
            "safe": "tree version help",
            "executes": "run tool add sync lock pip venv init build python",
            "sends": "publish auth",
            "deletes": "remove cache",
        },
    ),
    "uv run": ProgramRisks(
        only_safe=True, safe="-q --quiet --frozen --locked --offline --no-sync", runs_after=0
    ),
    "poetry": ProgramRisks(only_safe=True, verbs={"safe": "show check version", "executes": "run install add"}),
    "poetry run": _RUNNER,
    "pipenv": ProgramRisks(only_safe=True, verbs={"safe": "graph", "executes": "run install shell"}),
    "pipenv run": _RUNNER,
    "hatch": ProgramRisks(only_safe=True, verbs={"safe": "version", "executes": "run test build"}),
    "hatch run": _RUNNER,
    "pdm": ProgramRisks(only_safe=True, verbs={"safe": "list show", "executes": "run install add"}),
    "pdm run": _RUNNER,
    "bundle": ProgramRisks(
        only_safe=True,
        verbs={"safe": "list show info outdated check", "executes": "exec install update add", "deletes": "clean"},
    ),
    "bundle exec": _RUNNER,
    "cargo": ProgramRisks(
        escapes={"executes": "-Z --config"},
        only_safe=True,
        safe="-p --package --workspace --all --lib --bin --bins --test --tests --example --examples --bench"
            " --benches"
        " --release -r --all-features --no-default-features --features -F -j --jobs -q --quiet -v --verbose"
        " --locked"
        " --offline --frozen --no-run --no-fail-fast --all-targets --message-format --doc --keep-going --check"
        " --color --target --profile",
        valued="pjF",
        verbs={
            "safe": "build b check c test t clippy fmt doc tree metadata bench search version help",
            "executes": "run r install fix",
            "sends": "publish login logout owner yank",
            "deletes": "clean remove rm",
            "writes": "add update new init vendor package generate-lockfile",
        },
    ),
    "go": ProgramRisks(
        risks={
            "writes": "-o -coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace -outputdir",
            "executes": "-ldflags -gcflags -asmflags -gccgoflags -compiler -C -pkgdir",
        },
        dashed=True,
        escape_text=re.compile(r" -?-(toolexec|vettool|exec|modfile|overlay)\b| env .*-w"),
        verbs={
            "safe": "build test vet list doc version env fmt help",
            "executes": "run generate tool install get",
            "deletes": "clean",
            "writes": "mod work fix bug telemetry",
        },
    ),
    "docker": ProgramRisks(
        risks={"reads": "-H -c --host --context --config"},
        only_safe=True,
        safe=_DOCKER_SAFE,
        verbs={
            "safe": "ps images logs inspect version info stats top port diff history search events",
            "executes": "run exec start restart create build buildx compose attach wait stack service swarm plugin",
            "deletes": "rm rmi kill stop pause system image container volume network builder",
            "sends": "push login logout",
            "reads": "pull",
            "writes": "cp save export commit tag load import rename update unpause context config secret manifest",
        },
    ),
    "docker exec": _docker_runner("-i"),
    "docker run": _docker_runner("--rm -i"),
    "docker compose": ProgramRisks(
        risks={"executes": "-f --file --project-directory --env-file"},
        only_safe=True,
        safe="-p --project-name",
        valued="p",
        verbs={
            "safe": "ps logs config images top version ls port events stats volumes",
            "executes": "up run exec start restart create build watch attach",
            "reads": "pull",
            "sends": "push publish",
            "deletes": "down rm kill stop pause",
            "writes": "cp unpause scale commit export",
        },
    ),
    "docker compose ps": ProgramRisks(only_safe=True, safe=f"{_DOCKER_SAFE} --services --status"),
    "docker compose logs": ProgramRisks(only_safe=True, safe=f"{_DOCKER_SAFE} --no-log-prefix --no-color"),
    "docker compose config": ProgramRisks(
        only_safe=True, safe="-q --quiet --services --volumes --images --profiles --hash"
    ),
    "docker compose exec": _docker_runner("-T"),
    "docker compose run": _docker_runner("-T --rm"),
    "docker system": _docker({"safe": "df info events", "deletes": "prune"}),
    "docker image": _docker({"safe": "ls inspect history", "deletes": "rm prune", "sends": "push"}),
    "docker container": _docker({
        "safe": "ls inspect logs top stats port", "deletes": "rm prune kill stop", "executes": "run exec start",
    }),
    "docker container exec": _docker_runner("-i"),
    "docker container run": _docker_runner("--rm -i"),
    "docker volume": _docker({"safe": "ls inspect", "deletes": "rm prune", "writes": "create"}),
    "docker network": _docker({"safe": "ls inspect", "deletes": "rm prune", "writes": "create connect"}),
    "kubectl": ProgramRisks(
        escapes={"executes": "--kubeconfig"},
        risks={"reads": "-s --server --context --cluster --user --token --as --raw --certificate-authority"},
        only_safe=True,
        safe=_KUBECTL_SAFE,
        valued="nolc",
        verbs={
            "safe": "get describe logs top version explain api-resources api-versions cluster-info",
            "executes": "exec run debug attach plugin",
            "deletes": "delete drain cordon taint evict",
            "writes": "apply create patch edit replace set label annotate scale rollout expose autoscale cp config"
            " uncordon",
            "sends": "port-forward proxy",
            "reads": "auth diff kustomize certificate",
        },
    ),
    "kubectl exec": ProgramRisks(
        only_safe=True, safe="-n --namespace -c --container -i", valued="nc", runs_after=1
    ),
    "helm": ProgramRisks(
        escapes={"executes": "--kubeconfig --post-renderer"},
        only_safe=True,
        safe="-n --namespace -A --all-namespaces -o --output -a --all --revision --max",
        valued="no",
        verbs={
            "safe": "list ls status get history search show version env",
            "deletes": "uninstall delete un",
            "executes": "install upgrade rollback template test plugin",
            "writes": "create package dependency repo pull",
            "sends": "push registry",
        },
    ),
    "terraform": ProgramRisks(
        only_safe=True,
        dashed=True,
        safe="-no-color -json -compact-warnings -input -lock -parallelism -refresh -check -diff -recursive -raw",
        verbs={
            "safe": "plan validate fmt show output version providers graph",
            "executes": "apply init import console test",
            "deletes": "destroy state taint",
            "writes": "workspace untaint get refresh",
            "sends": "login logout",
        },
    ),
    "apt": ProgramRisks(
        escapes={"executes": "-o -c --option --config-file"},
        only_safe=True,
        safe="--installed --upgradable -a --all-versions -q",
        valued="t",
        verbs={
            "safe": "list show search policy depends rdepends madison pkgnames",
            "deletes": "remove purge autoremove clean",
            "executes": "install upgrade full-upgrade dist-upgrade update source build-dep download",
        },
    ),
    "brew": ProgramRisks(
        only_safe=True,
        safe="--json --versions -v --verbose -q --quiet --cask --formula",
        verbs={
            "safe": "list info search outdated deps uses leaves doctor config",
            "deletes": "uninstall remove rm cleanup",
            "executes": "install upgrade update reinstall tap services bundle link",
        },
    ),
    "systemctl": ProgramRisks(
        risks={"sends": "-H -M --host --machine"},
        only_safe=True,
        safe="-l --full --no-pager -n --lines -a --all -t --type --state -p --property -q --quiet --user --value",
        valued="ntp",
        verbs={
            "safe": "status is-active is-enabled is-failed list-units list-unit-files list-timers list-sockets show"
            " cat list-dependencies get-default",
            "executes": "start restart reload enable daemon-reload reenable try-restart",
            "deletes": "stop disable kill mask",
            "writes": "edit set-property unmask set-default revert import-environment",
        },
    ),
    "dotnet": ProgramRisks(
        only_safe=True,
        safe="--no-build --no-restore -c --configuration --filter -v --verbosity --nologo -f --framework",
        verbs={"safe": "test build restore list --info", "executes": "run tool new", "deletes": "clean remove"},
    ),
}  # fmt: skip
