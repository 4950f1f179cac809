"""The list of private places: files and folders with credentials, histories and the like.

Reading one needs the approval of a reviewer, whatever the rules of the agent say, unless the agent's settings name
it under `sandbox.readable` or `sandbox.writable`. Tools compare resolved paths with this list, and the sandbox
masks what is in the user's home. Names are compared without case, as some file systems do."""

from typing import Literal

from msgspec import Struct

Kind = Literal["credentials", "project"]

CREDENTIALS = (
    # keys and agents
    ".ssh", ".gnupg", ".pki", ".putty", ".config/age", ".config/sops", ".step/secrets",
    # clouds and clusters
    ".aws", ".azure", ".config/gcloud", ".config/doctl", ".config/hcloud", ".config/linode-cli", ".config/scw",
    ".config/heroku", ".config/configstore", ".config/rclone", ".oci", ".aliyun", ".bluemix", ".fly/config.yml",
    ".vercel/auth.json", ".config/netlify", ".wrangler/config", ".config/.wrangler", ".kube", ".minikube",
    ".config/helm/registry", ".boto", ".s3cfg", ".passwd-s3fs", ".config/openstack", ".vault-token",
    ".terraform.d/credentials.tfrc.json", ".terraformrc", ".config/pulumi", ".pulumi/credentials.json",
    ".databrickscfg", ".snowsql", ".config/argocd", ".config/ngrok", ".ngrok2", ".cloudflared", ".config/tailscale",
    # containers and packages
    ".docker/config.json", ".docker/contexts", ".docker/machine", ".dockercfg", ".config/containers/auth.json",
    ".config/podman", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bundle/config",
    ".composer/auth.json", ".config/composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml",
    ".gradle/gradle.properties", ".nuget/NuGet/NuGet.Config", ".config/NuGet/NuGet.Config", ".config/pip",
    ".pip/pip.conf", ".config/pypoetry/auth.toml", ".config/hex", ".hex/hex.config", ".condarc",
    ".config/hub", ".config/huggingface", ".huggingface", ".cache/huggingface/token", ".kaggle",
    # code hosts and other services
    ".git-credentials", ".config/git/credentials", ".config/gh", ".config/glab-cli", ".config/tea",
    ".subversion/auth", ".netrc", "_netrc", ".config/op", ".config/github-copilot", ".claude/.credentials.json",
    ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".config/Slack", ".config/discord",
    ".config/Signal", ".local/share/TelegramDesktop",
    ".irssi", ".weechat", ".config/weechat", ".mutt", ".muttrc", ".msmtprc", ".fetchmailrc", ".mbsyncrc",
    ".thunderbird", ".local/share/evolution", ".purple", ".authinfo", ".authinfo.gpg", ".davfs2/secrets",
    # databases
    ".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".config/redis",
    # password stores and key rings
    ".password-store", ".local/share/gopass", ".config/gopass", ".local/share/keyrings", ".local/share/kwalletd",
    ".kde/share/apps/kwallet", ".config/keepassxc", ".config/Bitwarden", ".config/Bitwarden CLI",
    ".config/1Password", ".1password", ".electrum", ".bitcoin", ".ethereum/keystore",
    ".foundry/keystores", "Library/Keychains",
    # browsers
    ".mozilla", ".config/google-chrome", ".config/google-chrome-beta", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/vivaldi", ".config/opera", ".librewolf", ".waterfox", ".zen",
    "snap/firefox", "snap/chromium", ".var/app/org.mozilla.firefox", ".var/app/com.google.Chrome",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox",
    "Library/Application Support/BraveSoftware", "Library/Application Support/Microsoft Edge", "Library/Safari",
    "Library/Cookies",
    # histories
    ".bash_history", ".zsh_history", ".zhistory", ".histfile", ".sh_history", ".ash_history", ".ksh_history",
    ".history", ".zsh_sessions", ".bash_sessions", ".local/share/fish/fish_history", ".config/fish/fish_history",
    ".local/share/powershell", ".local/share/atuin", ".local/share/mcfly", ".config/nushell/history.txt",
    ".python_history", ".ipython/profile_default/history.sqlite", ".node_repl_history", ".psql_history",
    ".mysql_history", ".mariadb_history", ".sqlite_history", ".rediscli_history", ".mongo_history", ".dbshell",
    ".irb_history", ".pry_history", ".php_history", ".lesshst", ".viminfo", ".local/share/recently-used.xbel",
    ".Xauthority", ".ICEauthority",
)  # fmt: skip
"""Paths relative to a user's home. They count in every folder: a copy of a home is as private as the home."""

SYSTEM = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/ssl/private", "/etc/pki/tls/private", "/etc/ssh", "/etc/kubernetes", "/etc/krb5.keytab", "/etc/netplan",
    "/etc/wireguard", "/etc/openvpn", "/etc/letsencrypt", "/etc/networkmanager/system-connections",
    "/etc/rancher", "/etc/credstore", "/etc/credstore.encrypted", "/run/secrets", "/var/run/secrets",
    "/run/credentials", "/proc", "/var/lib/docker", "/var/lib/kubelet", "/var/spool/cron",
    "/var/lib/systemd/credential.secret",
)  # fmt: skip
"""Absolute paths. `/proc` shows the memory and the environment of processes."""

PROJECT_NAMES = frozenset({".env", ".envrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".htpasswd", ".dev.vars"})
PROJECT_STEMS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss")
PROJECT_SUFFIXES = (".env", ".pem", ".key", ".p12", ".pfx", ".ppk", ".kdbx", ".keystore", ".jks")
"""Names of files that contain secrets in projects too. Commands in the sandbox may read those of the workspace,
since builds need them; file tools need an approval."""
TEMPLATES = (".example", ".sample", ".template", ".dist", ".defaults", ".schema")
"""Suffixes of `.env` files without values."""


class PrivatePlace(Struct, frozen=True):
    """The entry of the list that a path is in."""

    name: str
    """The name in the list."""
    path: str
    """The path up to and including the private place."""
    kind: Kind


def find_private_place(path: str) -> PrivatePlace | None:
    """Return the private place that an absolute path without links is in, or None."""
    folded = path.casefold()
    if folded.startswith(SYSTEM):
        for place in SYSTEM:
            if folded == place or folded.startswith(f"{place}/"):
                return PrivatePlace(place, path[: len(place)], "credentials")
    names, whole = folded.split("/"), path.split("/")
    for end in range(1, len(names) + 1):
        if (found := _match_at(names, end)) is not None:
            return PrivatePlace(found[0], "/".join(whole[:end]), found[1])
    return None


def classify_name(name: str, path: str) -> Kind | None:
    """Return the kind of private place that an absolute path names, if its parent folders are known not to be
    private.

    `name` is its last component. It is quick, since searches call it for every file."""
    folded = name.casefold()
    if folded in _BY_LAST_NAME:
        names = path.casefold().split("/")
        found = _match_at(names, len(names))
        return None if found is None else found[1]
    return "project" if _is_project_file(folded) else None


def _match_at(names: list[str], end: int) -> tuple[str, Kind] | None:
    last = names[end - 1]
    for place in _BY_LAST_NAME.get(last, ()):
        if tuple(names[max(0, end - len(place)) : end]) == place:
            return "/".join(place), "credentials"
    return (last, "project") if _is_project_file(last) else None


def _is_project_file(name: str) -> bool:
    if name.endswith((".pub", *TEMPLATES)):
        return False
    return name in PROJECT_NAMES or name.endswith(PROJECT_SUFFIXES) or name.startswith((".env.", *PROJECT_STEMS))


def _by_last_name() -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for place in CREDENTIALS:
        names = tuple(place.casefold().split("/"))
        found.setdefault(names[-1], []).append(names)
    return found


_BY_LAST_NAME = _by_last_name()
