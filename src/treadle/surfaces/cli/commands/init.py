"""`treadle init`: set up a model, with questions at a terminal or with options in scripts."""

import signal
import sys
from contextlib import suppress
from typing import Annotated

from treadle.bootstrap.databases import find_owner
from treadle.config.home import Home
from treadle.domain.errors import TreadleError, UsageError
from treadle.home.model_setup import (
    EMBEDDED,
    EMBEDDED_NAME,
    ModelSetup,
    check_setup,
    describe_own_model,
    download_embedded,
    find_models,
    find_replaced,
    is_embedded_here,
    save_setup,
)
from treadle.surfaces.cli.command_line import Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import configured_home
from treadle.surfaces.terminal.download_bar import DownloadBar
from treadle.surfaces.terminal.line_input import Prompt, hidden_typing
from treadle.surfaces.terminal.output import alert, note, print_result
from treadle.surfaces.terminal.process import FAILED, Stop
from treadle.surfaces.terminal.setup_conversation import KEPT, AppliedSetup, SetupFunctions, hold_setup

MAX_KEY_BYTES = 16_384
group = Group()


@group.command("init")
async def init(
    model: Annotated[
        str, Option("-m", "--model", metavar="MODEL", help="Use this model: an alias or provider/model-id.")
    ] = "",
    provider: Annotated[
        str, Option(metavar="NAME", help="Use this provider. Its best model is used unless -m names one.")
    ] = "",
    base_url: Annotated[str, Option("--base-url", metavar="URL", help="Add a server at this address.")] = "",
    key: Annotated[
        bool, Option("--key", help="Store a key: typed in at a terminal, otherwise read from standard input.")
    ] = False,
    local: Annotated[
        bool, Option("--local", help=f"Use {EMBEDDED_NAME} on this machine, and download it if it is missing.")
    ] = False,
    replace: Annotated[bool, Option("--replace", help="Replace the model and the key that are set.")] = False,
    yes: Annotated[
        bool, Option("-y", "--yes", help="Ask nothing. Without options, use the best that is found.")
    ] = False,
    json: Json = False,
) -> int:
    """Set up a model: find one, store a key, test it and save it.

    At a terminal and without options it asks. The model is tested with one call and becomes the default. Nothing
    that is set is replaced without --replace or a yes."""
    home = configured_home()
    asks = Prompt.is_possible() and not yes and not json
    if local and (model or provider or base_url or key):
        raise UsageError("--local names a model. Leave out --model, --provider, --base-url and --key, or --local.")
    if key and not (provider or base_url):
        raise UsageError("--key needs the provider that the key is for: add --provider NAME or --base-url URL.")
    if not asks and not yes and not json:
        raise UsageError(
            "`treadle init` asks questions, and there is no terminal. Name what to use, and add --yes."
        )
    home.require_writable()  # before questions, a download or a call
    _announce_owner(home)
    chosen = ModelSetup(EMBEDDED if local else model, provider, base_url)
    if asks and chosen == ModelSetup():
        return await _hold(home)
    if key:
        chosen = ModelSetup(chosen.model, provider, base_url, _read_key(provider or base_url))
    applied = await (_choose(home, replace) if chosen == ModelSetup() else _apply(home, chosen, replace))
    if applied is None:
        note(f"The default model is {home.config().defaults.model} already. {KEPT}")
        return 0
    print_result(applied, applied.line, json=json)
    if applied.note is not None:
        note(applied.note)
    return 0


def _announce_owner(home: Home) -> None:
    with suppress(TreadleError):
        if find_owner(home) is not None:
            note("Another process owns this home. It uses the new settings from its next run on.")


async def _hold(home: Home) -> int:
    """Ask at the terminal. Ctrl-C and Ctrl-D leave everything as it is."""
    with Stop() as stop:
        prompt = Prompt(stop)

        async def ask_hidden(question: str) -> str | None:
            with hidden_typing():
                return await prompt.ask(question)

        with stop.asking():
            applied = await hold_setup(
                home, SetupFunctions(note, prompt.ask, ask_hidden, DownloadBar(EMBEDDED_NAME))
            )
        if applied is None:
            note(KEPT)
            return stop.exit_code if stop.is_requested else FAILED
    note(applied.line)
    if applied.note is not None:
        note(applied.note)
    note('Try it: treadle run "Hello."')
    return 0


async def _apply(home: Home, chosen: ModelSetup, replace: bool) -> AppliedSetup:
    """Test and save what the options name. Raise UsageError if that replaces something without --replace."""
    if chosen.model and not replace:
        _refuse_replacing(home, chosen)  # before a download and a call
    if chosen.model == EMBEDDED and not is_embedded_here(home):
        await download_embedded(home, DownloadBar(EMBEDDED_NAME))
    tested = await check_setup(home, chosen)
    if not replace:
        _refuse_replacing(home, tested.setup)
    path = save_setup(home, tested.setup)
    return AppliedSetup(tested.setup.model, tested.seconds, str(path), describe_own_model(home))


def _refuse_replacing(home: Home, setup: ModelSetup) -> None:
    if replaced := find_replaced(home, setup):
        raise UsageError(f"This replaces {' and '.join(replaced)}. {KEPT} Add --replace if that is intended.")


async def _choose(home: Home, replace: bool) -> AppliedSetup | None:
    """Set up the first model found that answers, one of each provider. Return None if a default is set."""
    if home.config().defaults.model is not None and not replace:
        return None
    tried: set[str] = set()
    models, problems = await find_models(home)
    for problem in problems:
        alert(problem)
    for found in models:
        provider = found.name.partition("/")[0]
        if provider in tried:
            continue
        tried.add(provider)
        try:
            return await _apply(home, ModelSetup(found.name), replace)
        except TreadleError as error:
            alert(f"{found.name} does not work: {error}")
    raise UsageError(
        "No model was found that answers. Store a key with --provider NAME --key, name a server with --base-url, "
        "or install the extra `local`."
    )


def _read_key(owner: str) -> str:
    """Return the key, which is never an argument: typed in at a terminal, otherwise from standard input."""
    if not Prompt.is_possible():
        data = sys.stdin.buffer.read(MAX_KEY_BYTES) if sys.stdin else b""
        try:
            return data.decode().strip()
        except UnicodeDecodeError:
            raise UsageError("The key on standard input is not UTF-8 text. Nothing was changed.") from None
    from getpass import getpass

    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends the question, not only the event loop
    try:
        return getpass(f"Key of {owner} (not shown): ").strip()
    except EOFError:
        raise UsageError("No key was given. Nothing was changed.") from None
