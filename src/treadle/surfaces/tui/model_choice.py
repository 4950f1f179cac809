"""The models that can be chosen: for the picker, and for the set-up at the first start."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from treadle.domain.errors import ConfigError, TreadleError, UsageError
from treadle.surfaces.cli.home_link import HomeLink
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.item_view import format_count

if TYPE_CHECKING:
    from treadle.api.engine import HostedEngine
    from treadle.config.home import Home
    from treadle.operations.system_facts import ModelView
    from treadle.surfaces.tui.picker_screen import PickerRow

PROBE_SECONDS = 2.0
MAX_LISTED_MODELS = 400
EMBEDDED = "local/smollm2"
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


def make_plain_engine(home: "Home") -> "HostedEngine":
    """Return an engine that is not opened: for its models only."""
    from treadle.api.engine import create_engine

    return create_engine(home=home)


async def find_models(home: "Home") -> list[FoundModel]:
    """Return the models of providers that have a key or answer on this machine, and the embedded one. Hosted
    providers are asked for their list, which is free."""
    from treadle.doctor.providers import is_local, list_callable_providers, probe_providers

    engine = make_plain_engine(home)
    models = engine.models
    try:
        callable_names = [
            name for name in list_callable_providers(models) if models.providers.get(name) is not None
        ]
        probes = await probe_providers(models, callable_names, timeout_seconds=PROBE_SECONDS)
        found: list[FoundModel] = []
        for name in callable_names:
            config = models.providers[name]
            probe = probes.get(name)
            if config is None or probe is None or probe.verdict != "answers":
                continue
            keys = ", ".join(models.key_settings(name))
            source = texts.SETUP_LOCAL if is_local(config) else texts.SETUP_KEY.format(name=keys or name)
            found += [FoundModel(f"{name}/{model}", source) for model in _order(name, list(probe.models or ()))]
    finally:
        await models.close()
    if _has_embedded():
        found.append(FoundModel(EMBEDDED, texts.SETUP_EMBEDDED))
    return found[:MAX_LISTED_MODELS]


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


async def list_model_rows(link: HomeLink) -> "list[PickerRow]":
    """Return the rows of the picker: aliases, and the models of all providers that answer."""
    from treadle.operations.system import MODELS, ListModels
    from treadle.surfaces.tui.picker_screen import PickerRow

    found = (await link.call(MODELS, ListModels(probe=True))).items
    usable = sorted(found, key=lambda model: (bool(model.problem), not model.is_default, model.kind != "alias"))
    return [
        PickerRow(model.name, model.name, _describe(model), "●" if model.is_default else "") for model in usable
    ]


def _describe(model: "ModelView") -> str:
    if model.problem:
        return model.problem
    parts = [model.resolved if model.kind == "alias" else ""]
    if model.context_window:
        parts.append(f"{format_count(model.context_window)} context")
    if model.input_price is not None and model.output_price is not None:
        parts.append(f"${model.input_price:g} in, ${model.output_price:g} out")
    if model.local:
        parts.append("local")
    return " · ".join(filter(None, parts))


async def check_model(link: HomeLink, name: str) -> None:
    """Raise UnknownModel or MissingKey if a model cannot be called."""
    if link.engine is not None:
        link.engine.models.resolve(name, None)
        return
    models = make_plain_engine(link.home).models
    try:
        models.resolve(name, None)
    finally:
        await models.close()


# ── Saving ──


def save_default_model(home: "Home", model: str) -> Path:
    """Write the model into the home's `config.yaml` as the default. Comments and other settings stay."""
    path = home.ensure() / "config.yaml"
    old = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    new = _with_default(old, model)
    temporary = path.with_name("config.yaml.new")
    temporary.write_text(new, encoding="utf-8")
    os.replace(temporary, path)
    try:
        saved = home.config().defaults.model
    except ConfigError:
        saved = None
    if saved != model:
        path.write_text(old, encoding="utf-8")
        raise UsageError(
            f"{path} was not changed: `defaults` could not be set. Write `defaults: {{model: {model}}}`."
        )
    return path


def _with_default(text: str, model: str) -> str:
    quoted = '"' + model.replace("\\", "\\\\").replace('"', '\\"') + '"'
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.rstrip() == "defaults:":
            lines.insert(index + 1, f"  model: {quoted}")
            return "\n".join(lines)
        if line.startswith("defaults:"):
            inside = line.removeprefix("defaults:").strip()
            rest = inside.removeprefix("{").removesuffix("}").strip() if inside.startswith("{") else ""
            lines[index] = f"defaults: {{model: {quoted}{', ' + rest if rest else ''}}}"
            return "\n".join(lines)
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}defaults:\n  model: {quoted}\n"


async def try_model(home: "Home", name: str) -> tuple[float, str | None]:
    """Ask a model for one word. Return the seconds that it took, and why it failed or None."""
    import time

    from treadle.domain.agents import ModelSettings
    from treadle.domain.messages import user
    from treadle.ports.model import Completed, Conversation, ModelRequest, Preamble

    engine = make_plain_engine(home)
    engine.models.local.notice = lambda text: None
    started = time.monotonic()
    try:
        found = engine.models.resolve(name, None)
        request = ModelRequest(
            found.model,
            Preamble("", ()),
            Conversation([user("Reply with the single word: ready")]),
            ModelSettings(max_tokens=512),
            provider=found.provider,
            profile=found.profile,
        )
        end = await found.client.reply(request, lambda _: None)
    except TreadleError as error:
        return 0.0, str(error)
    finally:
        await engine.models.close()
    return time.monotonic() - started, None if isinstance(end, Completed) else end.message
