"""The first start, line by line: no model is set yet. The user chooses one of what was found."""

from collections.abc import Awaitable, Callable, Sequence

from treadle.config.home import Home
from treadle.domain.errors import TreadleError
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.model_choice import FoundModel, find_models, save_default_model, try_model

MAX_LISTED_MODELS = 30
Say = Callable[[str], None]


async def set_up_model(home: Home, say: Say, ask: Callable[[str], Awaitable[str | None]]) -> bool:
    """Let the user choose a model, test it and save it. Return False if the user leaves."""
    say(texts.SETUP_LOOKING)
    found = await find_models(home)
    say(texts.SETUP_INTRO if found else texts.SETUP_NOTHING)
    for number, model in enumerate(found[:MAX_LISTED_MODELS], start=1):
        say(f"  {number}. {model.name} ({model.source})")
    if len(found) > MAX_LISTED_MODELS:
        say(texts.SETUP_MORE.format(count=len(found) - MAX_LISTED_MODELS))
    while (line := await ask(texts.INLINE_MODEL)) is not None:
        name = _find_name(line.strip(), found)
        if name is None:
            say(texts.SETUP_UNKNOWN)
        elif await _test_and_save(home, name, say):
            return True
    return False


def _find_name(typed: str, found: Sequence[FoundModel]) -> str | None:
    """Return the model that the user names by its number or its name."""
    if typed.isdecimal():
        number = int(typed)
        return found[number - 1].name if 0 < number <= len(found) else None
    return typed if "/" in typed or typed in {model.name for model in found} else None


async def _test_and_save(home: Home, name: str, say: Say) -> bool:
    say(texts.SETUP_TESTING.format(model=name))
    try:
        seconds, failure = await try_model(home, name)
        if failure is None:
            path = save_default_model(home, name)
            say(texts.SETUP_WORKS.format(model=name, seconds=seconds, path=path))
            return True
    except (TreadleError, OSError) as error:
        failure = str(error)
    say(texts.SETUP_FAILED.format(model=name, error=failure))
    return False
