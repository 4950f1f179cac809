"""Commands about the run and the queue, for the full screen and line by line."""

from treadle.domain.errors import UsageError
from treadle.domain.modes import MODE_TEXTS, describe_mode, parse_mode
from treadle.operations.feedback import GIVE, GiveFeedback
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat import Chat

SCORES = {"good": 1.0, "bad": 0.0}


async def choose_mode(chat: Chat, name: str) -> str:
    """Choose the mode with this name, and return what to tell the user. Raise UsageError for another word."""
    try:
        mode = parse_mode(name)
    except ValueError as error:
        raise UsageError(texts.NO_SUCH_MODE.format(error=error)) from None
    await chat.set_mode(mode)
    return texts.MODE_SET.format(name=describe_mode(mode), text=MODE_TEXTS[mode])


async def give_feedback(chat: Chat, argument: str) -> str:
    """Score the latest run, and return what to tell the user. Raise UsageError for another word and without a
    run."""
    score, _, note = argument.partition(" ")
    if score not in SCORES:
        raise UsageError(texts.FEEDBACK_HOW)
    if chat.latest_run is None:
        raise UsageError(texts.NO_SESSION)
    given = GiveFeedback(chat.latest_run, SCORES[score], note.strip())
    await chat.link.call(GIVE, given, key=chat.link.make_key())
    return texts.FEEDBACK_GIVEN.format(score=score)


async def change_run(chat: Chat, name: str, argument: str) -> str:
    """Perform a command and return what to tell the user. Raise UsageError if there is nothing to do."""
    match name:
        case "/queue":
            if not argument:
                raise UsageError(texts.QUEUE_WHAT)
            await chat.queue(argument)
            return texts.QUEUED_NOW if chat.queued else texts.SENT_NOW
        case "/unqueue":
            if not chat.queued:
                raise UsageError(texts.NOTHING_QUEUED)
            await chat.unqueue(chat.queued[-1])
            return texts.REMOVED_QUEUED
        case "/resume":
            if chat.waits_for not in ("interrupted", "unavailable", "retry", "breaker"):
                raise UsageError(texts.NOTHING_TO_RESUME)
            await chat.resume()
            return texts.RESUMING
        case _:
            if not chat.is_busy:
                raise UsageError(texts.NO_RUN)
            await chat.cancel()
            return texts.CANCELLING
