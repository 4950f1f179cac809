"""`treadle models`: which models can be asked, what is known of them, and whether they answer."""

import sys
import time
from typing import Any

import msgspec

from treadle.app import Engine
from treadle.domain.agents import ModelSettings
from treadle.domain.errors import UsageError
from treadle.domain.messages import user
from treadle.domain.models import Profile
from treadle.domain.providers import public
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble, Resolved
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.process import FAILED, complain
from treadle.surfaces.cli.run import add_endpoint
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import one_line, print_json

QUESTION = "Reply with the single word: ready"
_SETTINGS = ModelSettings(max_tokens=512)  # models that reason need room to


async def list_models(json: bool) -> int:
    """Providers with their keys, and the short names with what they stand for now."""
    models = Engine().models
    providers: list[dict[str, Any]] = [
        {
            "provider": name,
            "base_url": public(config.base_url),
            "api_mode": config.mode,
            "ready": not models.missing(name),
        }
        for name, config in models.providers.items()
        if config is not None
    ]
    aliases: list[dict[str, Any]] = [
        {"alias": alias, "models": list(names), "now": _stands_for(models, alias)}
        for alias, names in sorted(models.catalog.aliases.items())
    ]
    if json:
        for row in (*providers, *aliases):
            _print_json(row)
        return 0
    print_table(
        ("PROVIDER", "FORMAT", "ADDRESS", "KEY"),
        [
            (row["provider"], row["api_mode"], row["base_url"], _key(models.missing(row["provider"])))
            for row in providers
        ],
    )
    print()
    print_table(
        ("ALIAS", "STANDS FOR", "NOW"),
        [(row["alias"], ", ".join(row["models"]), row["now"] or "no key is set") for row in aliases],
    )
    note("Any other model: provider/model-id. `treadle models show MODEL` tells what is known of one.")
    return 0


def _key(missing: str | None) -> str:
    return "ready" if missing is None else f"set {missing}"


def _stands_for(models: Any, alias: str) -> str | None:
    try:
        found: Resolved = models.resolve(alias, None)
    except UsageError:
        return None
    return f"{found.provider}/{found.model}"


async def show_model(model: str, json: bool) -> int:
    """What a name stands for, and what is known of that model."""
    found = Engine().models.resolve(model, None)
    profile = msgspec.to_builtins(found.profile)
    facts: dict[str, Any] = {
        "provider": found.provider,
        "model": found.model,
        "api_mode": found.api_mode,
        "reason": found.reason,
        "context_window": found.profile.context_window,
        **profile,
    }
    if json:
        _print_json(facts)
        return 0
    for name, words in (
        ("model", f"{found.provider}/{found.model} ({found.reason})"),
        ("format", found.api_mode),
        ("context window", f"{found.profile.context_window:,} tokens"),
        ("price", _price(found.profile)),
        ("tools", found.profile.tools),
    ):
        print(f"{name:<15} {one_line(words)}")
    return 0


def _price(profile: Profile) -> str:
    if profile.local:
        return "none: it runs on your own machine"
    prices = profile.prices
    if prices is None:
        return "not known; set it under models in config.yaml"
    words = f"${prices.input:g} in, ${prices.output:g} out"
    if prices.cache_read is not None:
        words += f", ${prices.cache_read:g} cached"
    return f"{words}, for a million tokens"


async def pull_model(name: str) -> int:
    """Fetch weights, showing how far it is."""
    engine = Engine()
    path = await engine.pull(name, _Bar(name))
    print(path)
    note(f"ask it with: treadle run -m local/{name} MESSAGE")
    return 0


class _Bar:
    """How far a download is: a line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 0
        terminal = sys.stderr.isatty()
        if percent == self._shown or (not terminal and percent % 25 and percent != 100):
            return
        self._shown = percent
        line = f"{self._name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB ({percent}%)"
        if not terminal:
            note(line)
            return
        bar = "█" * (percent // 4)
        print(f"\r{line} {bar:<25}", end="\n" if done >= total else "", file=sys.stderr, flush=True)


async def try_model(model: str, base_url: str | None, json: bool) -> int:
    """Ask a model for one word, and say how that went."""
    engine = Engine()
    provider = None if base_url is None else add_endpoint(engine, base_url)
    found = engine.models.resolve(model, provider)
    name = f"{found.provider}/{found.model}"
    if not json:
        note(f"asking {name} ({found.api_mode}) …")
    request = ModelRequest(
        found.model,
        Preamble("", ()),
        Conversation([user(QUESTION)]),
        _SETTINGS,
        provider=found.provider,
        profile=found.profile,
    )
    engine.models.local.notice = note
    began, first = time.monotonic(), list[float]()
    try:
        end = await found.client.reply(request, lambda _: first.append(time.monotonic()) if not first else None)
    finally:
        await engine.models.close()
    seconds, waited = time.monotonic() - began, (first[0] - began) if first else None
    if json:
        _print_json({"model": name, "seconds": seconds, "first_token": waited, **_result(end, found)})
    elif isinstance(end, Completed):
        print(one_line("".join(getattr(part, "text", "") for part in end.parts).strip()) or "(an empty answer)")
        cost = found.profile.cost(end.usage)
        price = "price not known" if cost is None else f"${cost:.6f}"
        tokens = f"{end.usage.input_tokens} + {end.usage.output_tokens} tokens"
        note(f"{name} answers: {seconds:.2f} s, {tokens}, {price}")
    else:
        complain(end.message)
    return 0 if isinstance(end, Completed) else FAILED


def _result(end: Completed | Failed, found: Resolved) -> dict[str, Any]:
    if isinstance(end, Completed):
        return {"ok": True, "usage": end.usage, "cost": found.profile.cost(end.usage), "stop": end.stop}
    return {"ok": False, "error": end.kind, "message": end.message, "status": end.status}


def _print_json(value: Any) -> None:
    print_json(value)
