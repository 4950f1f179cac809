"""`treadle models`: which models can be asked, what is known of them, and whether they answer."""

import sys
import time
from typing import Any

import msgspec

from treadle.api.engine import Engine
from treadle.doctor.windows import WINDOW_SOURCES
from treadle.domain.agents import ModelSettings
from treadle.domain.messages import user
from treadle.domain.models import Profile
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble, Resolved
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.process import FAILED, complain
from treadle.surfaces.cli.progress import ProgressLine
from treadle.surfaces.cli.run import add_endpoint
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import amount, one_line, print_json

QUESTION = "Reply with the single word: ready"
_SETTINGS = ModelSettings(max_tokens=512)  # models that reason need room to


async def list_models(probe: bool, timeout_seconds: float, json: bool) -> int:
    """Show the providers with what they answered or how they are configured, and what the short names stand for."""
    # Imported here: the other commands of this group do without the HTTP client.
    from treadle.doctor.model_list import list_aliases, list_providers

    models = Engine().models
    with ProgressLine(is_shown=not json) as line:
        providers = await list_providers(
            models, probe_hosted=probe, progress=line.show_probes, timeout_seconds=timeout_seconds
        )
    aliases = list_aliases(models)
    if json:
        for row in (*providers, *aliases):
            _print_json(row)
        return 0
    print_table(
        ("PROVIDER", "FORMAT", "ADDRESS", "BASIS", "FOUND"),
        [(row.provider, row.api_mode, row.base_url, row.basis, row.found) for row in providers],
    )
    print()
    print_table(
        ("ALIAS", "STANDS FOR", "NOW"),
        [(row.alias, ", ".join(row.models), row.now or str(row.reason)) for row in aliases],
    )
    if any(row.ready is None for row in providers):
        note("`treadle models list --probe` asks hosted providers too, which is free.")
    note("Any other model: provider/model-id. `treadle models show MODEL` tells what is known of one.")
    return 0


async def show_model(model: str, json: bool) -> int:
    """What a name stands for, and what is known of that model."""
    models = Engine().models
    found = models.resolve(model, None)
    if found.query_window is not None and await found.query_window() is not None:
        found = models.resolve(model, None)
    source = models.window_source(found)
    profile = msgspec.to_builtins(found.profile)
    facts: dict[str, Any] = {
        "provider": found.provider,
        "model": found.model,
        "api_mode": found.api_mode,
        "reason": found.reason,
        "context_window": found.profile.context_window,
        "context_window_source": source,
        **profile,
    }
    if json:
        _print_json(facts)
        return 0
    for name, words in (
        ("model", f"{found.provider}/{found.model} ({found.reason})"),
        ("format", found.api_mode),
        ("context window", f"{found.profile.context_window:,} tokens ({WINDOW_SOURCES[source]})"),
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
        price = "price not known" if cost is None else f"${amount(cost)}"
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
