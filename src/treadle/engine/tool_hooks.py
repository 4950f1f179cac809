"""Calls to tool hooks, before and after a tool call. A hook that fails or times out blocks the call."""

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from treadle.domain.events import HookCause
from treadle.domain.messages import make_sendable
from treadle.domain.tools import ToolSpec
from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
from treadle.ports.tool import Observation


class BlockedByHook(Exception):
    """A hook blocked the call, failed or timed out."""

    def __init__(self, hook: str, reason: str, cause: HookCause = "blocked") -> None:
        super().__init__(reason)
        self.hook = hook
        self.reason = reason
        self.cause: HookCause = cause


def select_hooks(hooks: Sequence[Hook], tool: ToolSpec, own: Sequence[Hook] = ()) -> list[Hook]:
    """Return the hooks whose pattern matches any name of the tool: those of the engine, then the agent's own."""
    return [hook for hook in (*hooks, *own) if any(fnmatchcase(name, hook.tools) for name in tool.names)]


async def run_before_hooks(hooks: Sequence[Hook], call: HookedCall) -> HookedCall:
    """Return the call as the hooks let it run. Raise BlockedByHook if one blocks it."""
    for hook in hooks:
        # A hook may be unchecked third-party code and return anything.
        answer: Any = await _call_hook(
            hook, hook.before, msgspec.structs.replace(call, arguments=deepcopy(call.arguments))
        )
        match answer:
            case Block(reason):
                raise BlockedByHook(hook.name, make_sendable(str(reason)))
            case Rewrite(arguments):
                call = msgspec.structs.replace(call, arguments=_check_arguments(hook, arguments))
            case None:
                pass
            case other:
                reason = f"the hook {hook.name} answered {type(other).__name__}, not Block or Rewrite"
                raise BlockedByHook(hook.name, reason, "invalid")
    return call


async def run_after_hooks(hooks: Sequence[Hook], call: HookedCall, result: Observation) -> Observation:
    """Return the result as the hooks let it be seen. Raise BlockedByHook if one blocks it."""
    for hook in hooks:
        answer: Any = await _call_hook(hook, hook.after, call, result)
        if answer is None:
            continue
        if not isinstance(answer, Observation):
            reason = f"the hook {hook.name} answered {type(answer).__name__}, not an Observation"
            raise BlockedByHook(hook.name, reason, "invalid")
        result = answer
    return result


def _check_arguments(hook: Hook, arguments: Any) -> dict[str, Any]:
    """Return arguments that can be encoded as a JSON object. Raise BlockedByHook if they cannot."""
    try:
        return msgspec.json.decode(msgspec.json.encode(arguments), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        reason = f"the hook {hook.name} returned arguments that are not a JSON object: {error}"
        raise BlockedByHook(hook.name, reason, "invalid") from None


async def _call_hook(hook: Hook, method: Callable[..., Any], *arguments: object) -> Any:
    try:
        async with asyncio.timeout(hook.timeout):
            return await method(*arguments)
    except BlockedByHook:
        raise
    except TimeoutError:
        reason = f"the hook {hook.name} did not answer within {hook.timeout:g} s"
        raise BlockedByHook(hook.name, reason, "timeout") from None
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # a hook that exits must not end the process
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the caller was cancelled
        reason = f"the hook {hook.name} failed: {type(error).__name__}: {error}"
        raise BlockedByHook(hook.name, reason, "failed") from error
