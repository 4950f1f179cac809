"""Asking the hooks about a call, before it runs and after. A hook that fails, or takes too long, blocks."""

import asyncio
from collections.abc import Awaitable, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import msgspec

from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
from treadle.ports.tool import Observation

HOOK_SECONDS = 30.0
_Answer = TypeVar("_Answer")


class Blocked(Exception):
    """A hook said no, or could not say anything."""

    def __init__(self, hook: Hook, reason: str) -> None:
        super().__init__(reason)
        self.hook = hook.name
        self.reason = reason


def concerning(hooks: Sequence[Hook], tool: str) -> list[Hook]:
    return [hook for hook in hooks if fnmatchcase(tool, hook.tools)]


async def ask_before(hooks: Sequence[Hook], call: HookedCall) -> HookedCall:
    """The call as the hooks let it run. Raises Blocked."""
    for hook in hooks:
        match await _answer(hook, hook.before(call)):
            case Block(reason):
                raise Blocked(hook, reason)
            case Rewrite(arguments):
                call = msgspec.structs.replace(call, arguments=arguments)
            case None:
                pass
    return call


async def ask_after(hooks: Sequence[Hook], call: HookedCall, result: Observation) -> Observation:
    """The result as the hooks let it be seen. Raises Blocked."""
    for hook in hooks:
        result = await _answer(hook, hook.after(call, result)) or result
    return result


async def _answer(hook: Hook, question: Awaitable[_Answer]) -> _Answer:
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            return await question
    except TimeoutError:
        raise Blocked(hook, f"the hook {hook.name} did not answer within {HOOK_SECONDS:g} s") from None
    except Exception as error:  # hooks may be anybody's
        raise Blocked(hook, f"the hook {hook.name} failed: {type(error).__name__}: {error}") from error
