"""Runs under a run: begun with the call that wants them, told what their parent is told, and heard of once.

A child is a run like any other. What makes it a child is in its `run_queued`; what makes it wanted is the
`agent_spawn` of its parent, in the same commit. Its end is delivered to its parent in the commit of that end."""

import os
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count

import msgspec
from msgspec import Struct

from treadle.core.evaluation import asked_of, unjudged
from treadle.core.state import RunState
from treadle.core.steps import CollectChildren, Evaluate, NotifyResumed, SignalChildren, Wait
from treadle.core.subagents.limits import copied, lineage_of, narrowed, ordered
from treadle.core.subagents.waiting import outcome_of
from treadle.core.tools.ledger import Call
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Origin
from treadle.domain.errors import SessionDeleted, UsageError
from treadle.domain.events import (
    AgentAnswered,
    AgentEnd,
    AgentSpawn,
    AgentTold,
    AgentWaiting,
    CancelRequested,
    EventData,
    ResumeRequested,
    RunEnd,
    RunInterrupted,
    RunQueued,
    ToolCallError,
    ToolCallStart,
    UserMessage,
)
from treadle.domain.ids import RunId, SessionId
from treadle.domain.lineage import Lineage, Order, Role
from treadle.domain.messages import Message, sendable, user
from treadle.domain.runs import Outcome
from treadle.engine.deps import EngineDeps
from treadle.engine.model_resolution import may_use_tool
from treadle.engine.owned_run import ChildMessage, NewChild, OwnedRun
from treadle.engine.tool_preparation import ReadyCall
from treadle.engine.tool_results import finish_call

NOTHING_BEGUN = "Nothing was begun"
EVALUATION_SECONDS = 120.0
"""For whoever judges how a run ends."""
QUEUE_SECONDS = 30.0
"""Beyond that: it may have had to wait for its turn."""


class ToolWork(Struct, frozen=True):
    """What is about to be done of what was asked for."""

    here: list[ReadyCall]
    """The calls that run here."""
    events: tuple[EventData, ...]
    """What is on record of all of it before it is done."""
    runs: tuple[NewChild, ...] = ()
    """Those that are begun under this one."""


class _Child(Struct, frozen=True):
    """Who it is, what it is asked, and whose it is."""

    agent: AgentSpec
    message: Message
    session_id: SessionId
    lineage: Lineage
    patience: float | None
    """Seconds until it is asked to stop; None: it never is."""
    deadline: float | None
    """Seconds that it has by itself, once it has begun; None: as many as its agent."""


async def delegate_calls(cleared: list[ReadyCall], log: OwnedRun, deps: EngineDeps) -> ToolWork:
    """What is done here, and what is left to runs under this one."""
    here = [item for item in cleared if item.tool.spec.delegates is None]
    starts = tuple([item.start for item in here])
    if len(here) == len(cleared):
        return ToolWork(here, starts)
    events: list[EventData] = []
    runs: list[NewChild] = []
    for item in cleared:
        if item.tool.spec.delegates is not None:
            try:
                event, run = await _begin_child(item, log, deps)
            except UsageError as error:
                told = f"{NOTHING_BEGUN}: {error}"
                events.append(ToolCallError(item.call.call_id, item.call.name, "failed", told))
            else:
                events.append(event)
                runs.append(run)
    return ToolWork(here, (*starts, *events), tuple(runs))


async def _begin_child(item: ReadyCall, log: OwnedRun, deps: EngineDeps) -> tuple[AgentSpawn, NewChild]:
    state, order, role = log.state, item.arguments, item.tool.spec.delegates
    assert isinstance(order, Order), f"`{item.call.name}` delegates, and says nothing of to whom"
    assert role is not None, f"`{item.call.name}` delegates"
    if state.agent.limits.max_depth < 1:
        raise UsageError("this run is as far down as runs may go (limits.max_depth). Do it yourself.")
    if role == "send" and order.agent in _waiting_agents(state):
        raise UsageError(f"`{order.agent}` waits for you itself: it could never answer. Answer it instead.")
    agent = ordered(await _find_agent(role, order, state, deps), state.agent, order)
    deps.models.resolve(agent.model, agent.provider)
    wanted = [tool.spec.name for tool in deps.tools.select(agent.tools)]
    lineage = lineage_of(state, item.call.call_id, role)
    session = await _find_session(agent.name, log, deps) if role == "send" else SessionId(deps.ids("ses"))
    left = None if state.deadline is None else max(1.0, state.deadline - deps.clock.now())
    patience = deps.timeouts.agents or None
    child = _Child(agent, user(sendable(order.message)), session, lineage, patience, left)
    withheld = tuple([name for name in wanted if not may_use_tool(lineage, name)])
    return await _make_child(child, log, deps, item.start.arguments, withheld)


async def _find_agent(role: Role, order: Order, state: RunState, deps: EngineDeps) -> AgentSpec:
    """The agent that an order is for, as it is by itself."""
    if role == "spawn" and order.agent in (None, state.agent.name):
        return copied(state.agent, order)
    found = await deps.agents.named(order.agent or "", state.agent)
    if order.instructions is not None:
        raise UsageError(f"`{found.name}` has instructions of its own. Say what you want of it in the message.")
    own = {tool.spec.name for tool in deps.tools.select(found.tools)}
    asked = () if order.tools is None else deps.tools.select(order.tools)
    if missing := [tool.spec.name for tool in asked if tool.spec.name not in own]:
        raise UsageError(
            f"`{found.name}` has no tool {', '.join(missing)}: it may have fewer than its own, not more."
        )
    return found


async def _make_child(
    child: _Child,
    log: OwnedRun,
    deps: EngineDeps,
    arguments: str = "",
    withheld: tuple[str, ...] = (),
    end: Outcome | None = None,
) -> tuple[AgentSpawn, NewChild]:
    state, now, lineage = log.state, deps.clock.now(), child.lineage
    workspace = _real_path(str(deps.workspace(state.agent)))
    agent = narrowed(_resolve_paths(child.agent), _resolve_paths(state.agent), workspace, child.deadline)
    same = agent.name == state.agent.name
    agent_id = log.origin.agent_id if same else await deps.agents.identity(agent.name)
    origin = Origin(RunId(deps.ids("run")), child.session_id, agent_id, log.origin.run_id)
    expires_at = None if child.patience is None else now + child.patience
    event = AgentSpawn(
        lineage.call_id,
        origin.run_id,
        origin.session_id,
        agent.name,
        lineage.role,
        arguments,
        expires_at,
        withheld,
        end,
    )
    first = (_make_queued(agent, state, lineage), UserMessage(child.message))
    return event, NewChild(origin, first)


def _resolve_paths(agent: AgentSpec) -> AgentSpec:
    """The agent, with its folders where they are: what a link says can be changed by whoever may write there."""
    policy = agent.confinement
    return msgspec.structs.replace(
        agent,
        workspace=None if agent.workspace is None else _real_path(agent.workspace),
        sandbox=msgspec.structs.replace(
            policy,
            readable=tuple([_real_path(path) for path in policy.readable]),
            writable=tuple([_real_path(path) for path in policy.writable]),
        ),
    )


def _real_path(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _make_queued(agent: AgentSpec, parent: RunState, lineage: Lineage) -> RunQueued:
    above = parent.queued
    assert above is not None, "a run that has begun was asked for"
    return RunQueued(
        agent,
        asker=above.asker,
        token=above.token,
        token_quotas=above.token_quotas,
        credits_per_dollar=above.credits_per_dollar,
        lineage=lineage,
        owner=above.owner,
    )


def _waiting_agents(state: RunState) -> tuple[str, ...]:
    """The agents that wait for this run, itself among them. Above a fork nobody does."""
    lineage = state.lineage
    above = () if lineage is None else lineage.agents[len(lineage.agents) - len(lineage.above) :]
    return (*above, state.agent.name)


async def _find_session(agent: str, log: OwnedRun, deps: EngineDeps) -> SessionId:
    """The session that is kept for what this one says to an agent; another, where that one was deleted or is of
    another user."""
    for number in count():
        name = f"{log.origin.session_id}/{agent}/{number}"
        session = SessionId(f"ses_{_derive_uuid(name)}")
        try:
            found = await deps.sessions.find(session)
        except SessionDeleted:
            continue
        if found is None or found.owner == log.state.owner:
            return session
    raise AssertionError("there is always another number")


def _derive_uuid(name: str) -> str:
    """Always the same for a name: a UUID of version 8, which is made as one likes."""
    digest = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    marks = (0xF << 76 | 0x3 << 62, 0x8 << 76 | 0x2 << 62)
    return f"{digest & ~marks[0] | marks[1]:032x}"


async def manage_children(
    task: CollectChildren | SignalChildren | NotifyResumed | Evaluate, log: OwnedRun, deps: EngineDeps
) -> None:
    """See to the runs under this one, and to the one that judges it."""
    match task:
        case CollectChildren(calls):
            log.record(*await _collect_results(calls, log, deps))
        case SignalChildren():
            await _signal_children(task, log)
        case NotifyResumed():
            await _notify_resumed(log)
        case Evaluate():
            await _begin_evaluation(task, log, deps)


async def _collect_results(calls: Sequence[Call], log: OwnedRun, deps: EngineDeps) -> tuple[EventData, ...]:
    """The results of these calls, of what came of their children."""
    results: list[EventData] = []
    for call in calls:
        child, tool = log.state.children[call.call_id], deps.tools.find(call.name)
        came, late = outcome_of(child)
        elapsed = max(0, round((deps.clock.now() - child.began_at) * 1000))
        if tool is None:  # it is gone: nobody is asked about its result
            results.append(ToolCallError(call.call_id, call.name, "failed", came.content, elapsed))
            continue
        start = ToolCallStart(call.call_id, call.name, child.spawn.arguments, f"{log.origin.run_id}/{call.call_id}")
        item = ReadyCall(call, tool, None, start)
        results += await finish_call(item, came, elapsed, log, deps, "timeout" if late else "failed")
    return tuple(results)


# ── What is told, down and up ──


async def _signal_children(step: SignalChildren, log: OwnedRun) -> None:
    """Tell children what they must know. What they are told and that they were is one commit."""
    told: list[ChildMessage] = []
    for call_id in step.call_ids:
        child = log.state.children[call_id]
        key = f"{log.origin.run_id}/{step.what}/{log.state.sequence}"
        told.append(ChildMessage(child.spawn.run_id, _make_signal(step), key))
    await log.intend(AgentTold(step.call_ids, step.what, step.reason), tell=told)


def _make_signal(step: SignalChildren) -> EventData:
    match step.what:
        case "cancel":
            return CancelRequested(step.reason)
        case "interrupt":
            return RunInterrupted(step.reason)
        case "resume":
            return ResumeRequested()


def notify_of_end(end: RunEnd, log: OwnedRun) -> tuple[ChildMessage, ...]:
    """What the parent of a run is told when it ends; nothing, where it has none."""
    lineage, parent = log.state.lineage, log.origin.parent_run_id
    if lineage is None or parent is None:
        return ()
    event = AgentEnd(
        lineage.call_id,
        log.origin.run_id,
        log.state.agent.name,
        end.status,
        end.outcome,
        end.text,
        end.reason,
        end.metrics,
        log.state.steps_of_tree,
        end.stopped,
    )
    return (ChildMessage(parent, event, f"end of {log.origin.run_id}"),)


def notify_of_wait(wait: Wait, is_new: bool, log: OwnedRun) -> tuple[ChildMessage, ...]:
    """What those above a run are told when it begins to wait for a person: the root's people answer, and the time
    that it has stands still."""
    lineage, run_id, reason = log.state.lineage, log.origin.run_id, wait.of_people
    if lineage is None or not is_new or reason is None:
        return ()
    key, name = f"{run_id} waits at {log.state.sequence}", log.state.agent.name
    return tuple(
        [
            ChildMessage(above.run_id, AgentWaiting(run_id, name, reason, wait.detail, above.call_id), key)
            for above in lineage.above
        ]
    )


async def _notify_resumed(log: OwnedRun) -> None:
    """Tell them that it waits no more. That it has told them and that they were is one commit."""
    lineage, run_id, name = log.state.lineage, log.origin.run_id, log.state.agent.name
    assert lineage is not None, "only a run that has some above it has told them that it waits"
    key = f"{run_id} goes on at {log.state.sequence}"
    told = [ChildMessage(above.run_id, AgentAnswered(run_id, name, above.call_id), key) for above in lineage.above]
    await log.intend(AgentAnswered(run_id, name), tell=told)


# ── How a run ends is judged ──


async def _begin_evaluation(step: Evaluate, log: OwnedRun, deps: EngineDeps) -> None:
    """Begin the run that judges this one; or put on record why there is none."""
    role: Role = step.role
    names = (f"@{role}-{number}" for number in count(len(log.state.children)))
    lineage = lineage_of(log.state, next(name for name in names if not log.state.knows_call(name)), role)
    message = user(sendable(asked_of(role, log.state, step.end)))
    try:
        agent = await deps.agents.named(step.agent, log.state.agent)
        deps.models.resolve(agent.model, agent.provider)
        deps.tools.select(agent.tools)
        seconds, session = EVALUATION_SECONDS, SessionId(deps.ids("ses"))
        child = _Child(agent, message, session, lineage, seconds + QUEUE_SECONDS, seconds)
        event, run = await _make_child(child, log, deps, end=step.end)
    except UsageError as error:
        log.record(unjudged(role == "quality", step.agent, f"It was not asked: {error}"))
        return
    await log.intend(*step.events, event, begin=(run,))
