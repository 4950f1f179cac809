"""The questions of a set-up, for every surface: what to use, which key, and whether to replace what is set."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from treadle.config.home import Home
from treadle.domain.errors import TreadleError, UsageError
from treadle.home.model_setup import (
    EMBEDDED,
    FoundModel,
    ModelSetup,
    check_setup,
    describe_own_model,
    download_embedded,
    find_models,
    find_replaced,
    is_embedded_here,
    make_home_models,
    save_setup,
)

Ask = Callable[[str], Awaitable[str | None]]
"""Returns the answer to a question; None if the user leaves."""
Say = Callable[[str], None]

MAX_LISTED_MODELS = 24
LOOKING = "Looking for keys, servers and models …"
INTRO = "This can be used:"
KEY_ROW, SERVER_ROW = "Enter the key of a provider", "Enter the address of a server"
CHOICE = "Number, k, u, or provider/model-id:"
UNKNOWN = "Write a number of the list, k, u, or provider/model-id. Ctrl-D leaves."
PROVIDER = "Provider ({names}):"
UNKNOWN_PROVIDER = "No provider is called `{name}`. Choose one of {names}, or enter the address of a server."
ADDRESS = "Address, for example http://127.0.0.1:8000/v1:"
KEY = "Key of {name} (not shown):"
OPTIONAL_KEY = "Key of the server, or Enter for none (not shown):"
TESTING = "Asking {model} for one word …"
BEST_MODEL = "the best model of {provider}"
WORKS = "{model} answers in {seconds:.1f} s. Saved in {path}."
FAILED = "{model} does not work: {error}"
REPLACE = "This replaces {what}. Continue? [y/N]"
KEPT = "Nothing was changed."


class SetupFunctions(Struct, frozen=True):
    """How a surface asks and reports."""

    say: Say
    ask: Ask
    ask_hidden: Ask
    progress: Callable[[int, int], None]
    """Receives the bytes of a download and the total."""


class AppliedSetup(Struct, frozen=True):
    """A model that was tested and saved."""

    model: str
    seconds: float
    file: str
    note: str | None = None
    """What else the user should know."""

    @property
    def line(self) -> str:
        return WORKS.format(model=self.model, seconds=self.seconds, path=self.file)


async def hold_setup(home: Home, surface: SetupFunctions) -> AppliedSetup | None:
    """Ask until a model is set up. Return None if the user leaves."""
    surface.say(LOOKING)
    models, problems = await find_models(home)
    found = models[:MAX_LISTED_MODELS]
    for problem in problems:
        surface.say(problem)
    surface.say(INTRO)
    for number, model in enumerate(found, start=1):
        surface.say(f"  {number}. {model.name} ({model.source})")
    surface.say(f"  k. {KEY_ROW}")
    surface.say(f"  u. {SERVER_ROW}")
    while (typed := await surface.ask(CHOICE)) is not None:
        try:
            setup = await _read_choice(home, typed.strip(), found, surface)
            if setup is None:
                return None
            if not setup.model and not setup.provider and not setup.base_url:
                surface.say(UNKNOWN)
            elif (applied := await try_setup(home, setup, surface)) is not None:
                return applied
        except (TreadleError, OSError) as error:
            surface.say(f"{error}")
    return None


async def _read_choice(
    home: Home, typed: str, found: Sequence[FoundModel], surface: SetupFunctions
) -> ModelSetup | None:
    """Return what the user chose; an empty setup for an answer that is none, and None if the user leaves."""
    if typed == "k":
        return await read_key(home, surface)
    if typed == "u":
        return await read_server(surface)
    if typed.isdecimal():
        number = int(typed)
        return ModelSetup(found[number - 1].name if 0 < number <= len(found) else "")
    return ModelSetup(typed if "/" in typed or typed in {model.name for model in found} else "")


async def read_key(home: Home, surface: SetupFunctions) -> ModelSetup | None:
    """Ask for a provider and its key. Return None if the user leaves."""
    models = make_home_models(home)
    names = ", ".join(name for name, config in models.providers.items() if config is not None and config.needs_key)
    provider = await surface.ask(PROVIDER.format(names=names))
    if not provider:
        return None if provider is None else ModelSetup()
    if provider.strip() not in models.providers:
        raise UsageError(UNKNOWN_PROVIDER.format(name=provider.strip(), names=names))
    key = await surface.ask_hidden(KEY.format(name=provider.strip()))
    return None if key is None else ModelSetup(provider=provider.strip(), key=key.strip())


async def read_server(surface: SetupFunctions) -> ModelSetup | None:
    """Ask for the address of a server and its key. Return None if the user leaves."""
    address = await surface.ask(ADDRESS)
    if not address:
        return None if address is None else ModelSetup()
    key = await surface.ask_hidden(OPTIONAL_KEY)
    return None if key is None else ModelSetup(base_url=address.strip(), key=key.strip())


async def try_setup(home: Home, setup: ModelSetup, surface: SetupFunctions) -> AppliedSetup | None:
    """Test a setup and save it. Return None, after saying why, if it was not saved."""
    name = setup.model or BEST_MODEL.format(provider=setup.provider or setup.base_url)
    try:
        if setup.model == EMBEDDED and not is_embedded_here(home):
            await download_embedded(home, surface.progress)
        surface.say(TESTING.format(model=name))
        tested = await check_setup(home, setup)
    except TreadleError as error:
        surface.say(FAILED.format(model=name, error=error) if setup.model else str(error))
        return None
    replaced = find_replaced(home, tested.setup)
    if replaced:
        answer = await surface.ask(REPLACE.format(what=" and ".join(replaced)))
        if (answer or "").strip().lower() not in ("y", "yes"):
            surface.say(KEPT)
            return None
    path = save_setup(home, tested.setup)
    return AppliedSetup(tested.setup.model, tested.seconds, str(path), describe_own_model(home))
