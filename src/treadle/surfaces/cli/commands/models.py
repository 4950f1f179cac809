"""`treadle models`: list, test and download models."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from treadle.domain.agents import ModelSettings
from treadle.domain.messages import user
from treadle.domain.models import Profile, StructuredOutput
from treadle.domain.money import format_amount
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble, Resolved
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.progress import ProgressLine
from treadle.surfaces.cli.shared_options import BaseUrl, Json, ModelArgument
from treadle.surfaces.terminal.download_bar import DownloadBar
from treadle.surfaces.terminal.output import Column, note, print_error, print_fields, print_json, print_table
from treadle.surfaces.terminal.process import FAILED
from treadle.surfaces.terminal.text import one_line

if TYPE_CHECKING:
    from treadle.api.engine import HostedEngine

QUESTION = "Reply with the single word: ready"
SETTINGS = ModelSettings(max_tokens=512)  # models that reason need room to
_SENT_SCHEMA: dict[StructuredOutput, str] = {
    "never": "in the prompt",
    "without_tools": "in the prompt, and with requests without tools",
    "always": "in the prompt, and with every request",
}
group = Group("models")


@group.command("list")
async def list_models(
    probe: Annotated[bool, Option("--probe", help="Also ask hosted providers that have a key.")] = False,
    timeout: Annotated[float, Option(min=0.1, metavar="SECONDS", help="Time limit of each probe.")] = 2.0,
    json: Json = False,
) -> int:
    """List providers and model aliases.

    Providers on this machine are asked for their models; hosted ones only with --probe. No model is called."""
    from treadle.home.model_list import list_aliases, list_providers

    models = _make_engine().models
    with ProgressLine(is_shown=not json) as line:
        providers = await list_providers(
            models, probe_hosted=probe, progress=line.show_probes, timeout_seconds=timeout
        )
    aliases = list_aliases(models)
    if json:
        for row in (*providers, *aliases):
            print_json(row)
        return 0
    print_table(
        (
            *("PROVIDER", Column("FORMAT", is_optional=True), Column("ADDRESS", shrinks_to=24)),
            *(Column("BASIS", is_optional=True), Column("FOUND", shrinks_to=28)),
        ),
        [(row.provider, row.api_mode, row.base_url, row.basis, row.found) for row in providers],
    )
    print()
    print_table(
        ("ALIAS", Column("STANDS FOR", shrinks_to=28), Column("NOW", shrinks_to=20)),
        [(row.alias, ", ".join(row.models), row.now or str(row.reason)) for row in aliases],
    )
    if any(row.ready is None for row in providers):
        note("`treadle models list --probe` also asks hosted providers, which is free.")
    note("Any other model: provider/model-id. `treadle models show MODEL` prints what is known about it.")
    return 0


@group.command("show")
async def show_model(model: ModelArgument, json: Json = False) -> int:
    """Show what an alias stands for, and the context window, prices and features of the model."""
    from treadle.doctor.windows import WINDOW_SOURCES

    models = _make_engine().models
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
        print_json(facts)
        return 0
    fields = (
        ("model", f"{found.provider}/{found.model} ({found.reason})"),
        ("format", found.api_mode),
        ("context window", f"{found.profile.context_window:,} tokens ({WINDOW_SOURCES[source]})"),
        ("price", _price(found.profile)),
        ("tools", found.profile.tools),
        ("output schema", _SENT_SCHEMA[found.profile.structured_output]),
    )
    print_fields(fields, width=15)
    return 0


@group.command("pull")
async def pull_model(
    name: Annotated[str, Argument(metavar="NAME", help="The name of the model, for example smollm2.")],
) -> int:
    """Download the weights of a local model. An interrupted download is resumed."""
    path = await _make_engine().pull(name, DownloadBar(name))
    print(path)
    note(f"Ask it: treadle run -m local/{name} MESSAGE")
    return 0


@group.command("test")
async def try_model(model: ModelArgument, base_url: BaseUrl = None, json: Json = False) -> int:
    """Send a one-word request to a model, and print whether the key works, the latency and the cost."""
    from treadle.surfaces.cli.follow import add_endpoint

    engine = _make_engine()
    provider = None if base_url is None else add_endpoint(engine, base_url)
    found = engine.models.resolve(model, provider)
    name = f"{found.provider}/{found.model}"
    if not json:
        note(f"Asking {name} ({found.api_mode}) …")
    request = ModelRequest(
        found.model,
        Preamble("", ()),
        Conversation([user(QUESTION)]),
        SETTINGS,
        provider=found.provider,
        profile=found.profile,
    )
    engine.models.local.notice = note
    started, first = time.monotonic(), list[float]()
    try:
        end = await found.client.reply(request, lambda _: first.append(time.monotonic()) if not first else None)
    finally:
        await engine.models.close()
    seconds, waited = time.monotonic() - started, (first[0] - started) if first else None
    if json:
        print_json({"model": name, "seconds": seconds, "first_token": waited, **_result(end, found)})
    elif isinstance(end, Completed):
        print(one_line("".join(getattr(part, "text", "") for part in end.parts).strip()) or "(an empty answer)")
        cost = found.profile.cost(end.usage)
        price = "price unknown" if cost is None else f"${format_amount(cost)}"
        tokens = f"{end.usage.input_tokens} tokens in, {end.usage.output_tokens} out"
        note(f"{name} answers: {seconds:.2f} s, {tokens}, {price}")
    else:
        print_error(end.message)
    return 0 if isinstance(end, Completed) else FAILED


def _make_engine() -> "HostedEngine":
    from treadle.api.engine import create_engine
    from treadle.surfaces.home_access.connection import configured_home

    return create_engine(home=configured_home())


def _price(profile: Profile) -> str:
    if profile.local:
        return "none: it runs on this machine"
    prices = profile.prices
    if prices is None:
        return "unknown; set it under models in config.yaml"
    words = f"${prices.input:g} in, ${prices.output:g} out"
    if prices.cache_read is not None:
        words += f", ${prices.cache_read:g} cached"
    return f"{words}, per million tokens"


def _result(end: Completed | Failed, found: Resolved) -> dict[str, Any]:
    if isinstance(end, Completed):
        return {"ok": True, "usage": end.usage, "cost": found.profile.cost(end.usage), "stop": end.stop}
    return {"ok": False, "error": end.kind, "message": end.message, "status": end.status}
