"""Commands about the run and the queue, for the full screen and line by line."""

from treadle.domain.errors import UsageError
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat import Chat


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
