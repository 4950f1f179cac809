"""Child runs: begun by a tool call or an evaluation, signalled by their parent, and collected once.

A child is a run like any other. Its `run_queued` event makes it a child. The `agent_spawn` event of its parent, in
the same commit, makes the parent wait for it. The commit of a child's end delivers it to the parent."""

import os
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from treadle.core.evaluation import make_evaluation_prompt, make_missing_verdict
from treadle.core.state import RunState
from treadle.core.steps import CollectChildren, Evaluate, NotifyResumed, find_reviewer_wait
from treadle.core.subagents.limits import apply_order, copy_agent, make_lineage, narrow_agent
from treadle.core.subagents.supervision import read_outcome
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
    CallErrorKind,
    CancelRequested,
    EventData,
    ModeChanged,
    ResumeRequested,
    RunEnd,
    RunInterrupted,
    RunQueued,
    RunWaiting,
    ToolCallError,
    ToolCallStart,
    UserMessage,
)
from treadle.domain.excerpts import place_excerpt
from treadle.domain.ids import RunId, SessionId
from treadle.domain.labels import inherit_tags
from treadle.domain.lineage import Lineage, Order, Role
from treadle.domain.messages import Message, make_sendable, user
from treadle.domain.runs import Metrics, Outcome, add_metrics
from treadle.domain.workspaces import Workspace
from treadle.engine.call_failures import CallFailure
from treadle.engine.deps import ChildDeps, ToolDeps
from treadle.engine.model_resolution import may_use_tool
from treadle.engine.owned_run import ChildMessage, NewChild, OwnedRun
from treadle.engine.tool_preparation import ReadyCall
from treadle.engine.tool_results import finish_call
from treadle.ports.run_context import RunContext

NOTHING_BEGUN = "Nothing was begun"
EVALUATION_SECONDS = 120.0
"""Time limit of the run that evaluates another."""
QUEUE_SECONDS = 30.0
"""Additional time for the evaluation: it may wait before it starts."""


class ToolWork(Struct, frozen=True):
    """The calls of a step, divided into calls that run here and child runs."""

    local_calls: list[ReadyCall]
    """The calls that run here."""
    events: tuple[EventData, ...]
    """The events to commit before any of it starts."""
    runs: tuple[NewChild, ...] = ()
    """The child runs to begin."""


class _Child(Struct, frozen=True):
    """A child run: its agent, its message and its place in the tree."""

    agent: AgentSpec
    message: Message
    session_id: SessionId
    lineage: Lineage
    timeout_seconds: float | None
    """Seconds until the parent asks it to stop; None for no limit."""
    deadline: float | None
    """Seconds for which it may run after its start; None for the limit of its agent."""


async def delegate_calls(ready: list[ReadyCall], run: OwnedRun, deps: ChildDeps) -> ToolWork:
    """Return which calls run here and which begin child runs."""
    here = [item for item in ready if item.tool.spec.delegates is None]
    starts = tuple([item.start for item in here])
    if len(here) == len(ready):
        return ToolWork(here, starts)
    events: list[EventData] = []
    runs: list[NewChild] = []
    for item in ready:
        if item.tool.spec.delegates is not None:
            try:
                event, child_run = await _begin_child(item, run, deps)
            except UsageError as error:
                events.append(_make_not_started(item.call, error))
            else:
                events.append(event)
                runs.append(child_run)
    return ToolWork(here, (*starts, *events), tuple(runs))


class _UnknownName(UsageError):
    """An order names an agent or a tool that does not exist."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(reason)
        self.name = name


def _make_not_started(call: Call, error: UsageError) -> ToolCallError:
    before, reason = f"{NOTHING_BEGUN}: ", str(error)
    subject = error.name if isinstance(error, _UnknownName) else ""
    excerpt = place_excerpt(before, reason)
    return ToolCallError(
        call.call_id, call.name, "failed", before + reason, excerpt=excerpt, cause="not_started", subject=subject
    )


def _select_tools(names: Sequence[str], deps: ChildDeps) -> list[str]:
    """Return the names of the tools that an allowlist selects. Raise UsageError if one does not exist."""
    try:
        return [tool.spec.name for tool in deps.tools.select(names)]
    except UsageError as error:
        for name in names:
            try:
                deps.tools.select((name,))
            except UsageError:
                raise _UnknownName(str(error), name) from None
        raise


async def _begin_child(item: ReadyCall, run: OwnedRun, deps: ChildDeps) -> tuple[AgentSpawn, NewChild]:
    state, order, role = run.state, item.arguments, item.tool.spec.delegates
    assert isinstance(order, Order), f"`{item.call.name}` delegates without saying to whom"
    assert role is not None, f"`{item.call.name}` delegates"
    if state.agent.limits.max_depth < 1:
        raise UsageError("this run is at the maximum depth (limits.max_depth). Do the task yourself.")
    if role == "send" and order.agent in _list_waiting_agents(state):
        raise UsageError(f"`{order.agent}` waits for your answer, so it cannot answer you. Answer it instead.")
    agent = apply_order(await _find_agent(role, order, state, deps), state.agent, order)
    deps.models.resolve(agent.model, agent.provider)
    wanted_tools = _select_tools(agent.tools, deps)
    lineage = make_lineage(state, item.call.call_id, role, None if role == "spawn" else agent.name)
    session = await _find_session(agent.name, run, deps) if role == "send" else SessionId(run.worker.ids("ses"))
    seconds_left = None if state.deadline is None else max(1.0, state.deadline - run.worker.clock.now())
    timeout_seconds = deps.timeouts.agents or None
    child = _Child(
        agent=agent,
        message=user(make_sendable(order.message)),
        session_id=session,
        lineage=lineage,
        timeout_seconds=timeout_seconds,
        deadline=seconds_left,
    )
    withheld = tuple([name for name in wanted_tools if not may_use_tool(lineage, name)])
    return await _make_child(child, run, deps, item.start.arguments, withheld)


async def _find_agent(role: Role, order: Order, state: RunState, deps: ChildDeps) -> AgentSpec:
    """Return the agent that an order names, before it is narrowed."""
    if role == "spawn" and order.agent in (None, state.agent.name):
        return copy_agent(state.agent, order)
    try:
        found = await deps.agents.get_agent(order.agent or "", state.agent)
    except UsageError as error:
        raise _UnknownName(str(error), order.agent or "") from None
    if order.instructions is not None:
        raise UsageError(f"`{found.name}` has its own instructions. Put your request into the message.")
    own = _select_tools(found.tools, deps)
    ordered_tools = [] if order.tools is None else _select_tools(order.tools, deps)
    if missing := [name for name in ordered_tools if name not in own]:
        raise UsageError(
            f"`{found.name}` has no tool {', '.join(missing)}: you can limit its tools, but not add to them."
        )
    return found


async def _make_child(
    child: _Child,
    run: OwnedRun,
    deps: ChildDeps,
    arguments: str = "",
    withheld: tuple[str, ...] = (),
    end: Outcome | None = None,
) -> tuple[AgentSpawn, NewChild]:
    state, now, lineage = run.state, run.worker.clock.now(), child.lineage
    workspace = _real_path(str(deps.workspace(state.agent)))
    run_id = RunId(run.worker.ids("run"))
    instructed = await _write_instructions(child, run_id, run, deps)
    agent = narrow_agent(_resolve_paths(instructed), _resolve_paths(state.agent), workspace, child.deadline)
    is_same = agent.name == state.agent.name
    agent_id = run.origin.agent_id if is_same else await deps.agents.identity(agent.name)
    origin = Origin(run_id, child.session_id, agent_id, run.origin.run_id)
    expires_at = None if child.timeout_seconds is None else now + child.timeout_seconds
    event = AgentSpawn(
        call_id=lineage.call_id,
        run_id=origin.run_id,
        session_id=origin.session_id,
        agent=agent.name,
        role=lineage.role,
        arguments=arguments,
        expires_at=expires_at,
        withheld=withheld,
        end=end,
        mode=state.review.mode,
    )
    folder = agent.workspace or workspace
    place = Workspace(state.workspace if folder == workspace else deps.identify_workspace(folder), folder)
    if state.recalls_by_workspace and agent.memory.scope is None:  # a child with fewer tools recalls no more
        agent = msgspec.structs.replace(agent, memory=msgspec.structs.replace(agent.memory, scope="workspace"))
    queued, version = state.tree.queued, None
    if is_same and queued is not None:
        version = queued.version
    elif not is_same:
        version = await deps.agents.version(agent.name)
    events = (_make_queued(agent, state, lineage, place, version), UserMessage(child.message))
    return event, NewChild(origin, events)


async def _write_instructions(child: _Child, run_id: RunId, run: OwnedRun, deps: ChildDeps) -> AgentSpec:
    """Return the agent of a child run, with the instructions that its function writes."""
    if child.agent.name not in deps.program.instructions:
        return child.agent
    queued = run.state.tree.queued
    assert queued is not None, "a run that has started has its run_queued"
    context = RunContext[Any](
        run_id=run_id,
        session_id=child.session_id,
        agent=child.agent.name,
        user=queued.user,
        tags=queued.tags,
        metadata=queued.metadata,
        deps=deps.program.find(run.origin.run_id),
    )
    return await deps.program.instruct(child.agent, context)


def _resolve_paths(agent: AgentSpec) -> AgentSpec:
    """Return the agent with its folders resolved, since a process that can write there can change a link."""
    policy = agent.confinement
    return msgspec.structs.replace(
        agent,
        workspace=None if agent.workspace is None else _real_path(agent.workspace),
        sandbox=msgspec.structs.replace(
            policy,
            readable=tuple([_real_path(path) for path in policy.readable]),
            writable=tuple([_real_path(path) for path in policy.writable]),
            read_only=tuple([os.path.join(agent.workspace or "", path) for path in policy.read_only]),
        ),
    )


def _real_path(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _make_queued(
    agent: AgentSpec, parent: RunState, lineage: Lineage, workspace: Workspace, version: int | None
) -> RunQueued:
    above = parent.tree.queued
    assert above is not None, "a run that has started has its run_queued"
    return RunQueued(
        agent,
        asker=above.asker,
        token=above.token,
        token_quotas=above.token_quotas,
        credits_per_dollar=above.credits_per_dollar,
        lineage=lineage,
        owner=above.owner,
        workspace=workspace,
        anonymous=above.anonymous,
        tags=inherit_tags(above.tags, agent.tags),
        metadata=above.metadata,
        trace_parent=above.trace_parent,
        own_deps=above.own_deps,
        version=version,
        mode=parent.review.mode,
        stand_ins=above.stand_ins,
    )


def _list_waiting_agents(state: RunState) -> tuple[str, ...]:
    """Return the agents that wait for this run, itself included. Ancestors of a fork do not wait."""
    lineage = state.lineage
    above = () if lineage is None else lineage.agents[len(lineage.agents) - len(lineage.above) :]
    return (*above, state.agent.name)


async def _find_session(agent: str, run: OwnedRun, deps: ChildDeps) -> SessionId:
    """Return the session for messages from this session to an agent, or another one if that was deleted or belongs
    to another user."""
    for number in count():
        name = f"{run.origin.session_id}/{agent}/{number}"
        session = SessionId(f"ses_{_derive_uuid(name)}")
        try:
            found = await deps.sessions.find(session)
        except SessionDeleted:
            continue
        if found is None or found.owner == run.state.owner:
            return session
    raise AssertionError("there is always another number")


def _derive_uuid(name: str) -> str:
    """Return a UUID of version 8 that depends on the name only."""
    digest = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    marks = (0xF << 76 | 0x3 << 62, 0x8 << 76 | 0x2 << 62)
    return f"{digest & ~marks[0] | marks[1]:032x}"


async def manage_children(
    task: CollectChildren | AgentTold | NotifyResumed | Evaluate,
    run: OwnedRun,
    deps: ChildDeps,
    tools: ToolDeps,
) -> None:
    """Collect, signal or notify relatives of the run, or begin its evaluation."""
    match task:
        case CollectChildren(calls):
            run.record(*await _collect_results(calls, run, tools))
        case AgentTold():
            await _signal_children(task, run)
        case NotifyResumed():
            await _notify_resumed(run)
        case Evaluate():
            await _begin_evaluation(task, run, deps)


async def _collect_results(calls: Sequence[Call], run: OwnedRun, deps: ToolDeps) -> tuple[EventData, ...]:
    """Return the results of these calls, from the outcomes of their child runs."""
    results: list[EventData] = []
    for call in calls:
        child, tool = run.state.tree.children[call.call_id], deps.tools.find(call.name)
        result, timed_out = read_outcome(child)
        kind: CallErrorKind = "timeout" if timed_out else "failed"
        elapsed = max(0, round((run.worker.clock.now() - child.began_at) * 1000))
        if tool is None:  # the tool no longer exists, so no hook applies
            error = ToolCallError(call.call_id, call.name, "failed", result.content, elapsed, cause="child")
            results.append(error)
            continue
        start = ToolCallStart(call.call_id, call.name, child.spawn.arguments, f"{run.origin.run_id}/{call.call_id}")
        item = ReadyCall(call, tool, None, start)
        made_up = (0, 0) if child.end is not None and not child.end.text and not result.is_error else None
        results += await finish_call(item, result, elapsed, run, deps, CallFailure(kind, "child", made_up))
    return tuple(results)


# ── Messages to children and ancestors ──


async def _signal_children(step: AgentTold, run: OwnedRun) -> None:
    """Send a signal to child runs. The messages and their record are one commit."""
    messages: list[ChildMessage] = []
    for call_id in step.call_ids:
        child = run.state.tree.children[call_id]
        key = f"{run.origin.run_id}/{step.what}/{run.state.sequence}"
        messages.append(ChildMessage(child.spawn.run_id, _make_signal(step), key))
    await run.intend(step, tell=messages)


def _make_signal(step: AgentTold) -> EventData:
    match step.what:
        case "cancel":
            return CancelRequested(step.reason)
        case "interrupt":
            return RunInterrupted(step.reason)
        case "resume":
            return ResumeRequested()
        case "mode":
            return ModeChanged(step.mode)


def notify_of_end(end: RunEnd, run: OwnedRun) -> tuple[ChildMessage, ...]:
    """Return the message that tells the parent run of this run's end, or nothing if it has no parent."""
    lineage, parent = run.state.lineage, run.origin.parent_run_id
    if lineage is None or parent is None:
        return ()
    event = AgentEnd(
        call_id=lineage.call_id,
        run_id=run.origin.run_id,
        agent=run.state.agent.name,
        status=end.status,
        outcome=end.outcome,
        text=end.text,
        reason=end.reason,
        metrics=end.metrics,
        steps=run.state.steps_of_tree,
        stopped=end.stopped,
        tree_metrics=_add_descendants(end.metrics, run),
    )
    return (ChildMessage(parent, event, f"end of {run.origin.run_id}"),)


def _add_descendants(own: Metrics, run: OwnedRun) -> Metrics | None:
    """Return the metrics of the run with those of its child runs that have ended, or None if there are none."""
    ends = [child.end for child in run.state.tree.children.values() if child.end is not None]
    return add_metrics((own, *(end.tree_metrics or end.metrics for end in ends))) if ends else None


def notify_of_wait(wait: RunWaiting, is_new: bool, run: OwnedRun) -> tuple[ChildMessage, ...]:
    """Return the messages that tell all ancestors that this run waits for a reviewer.

    The reviewers of the root run answer, and the ancestors' time limits pause."""
    lineage, run_id, reason = run.state.lineage, run.origin.run_id, find_reviewer_wait(wait)
    if lineage is None or not is_new or reason is None:
        return ()
    key, name = f"{run_id} waits at {run.state.sequence}", run.state.agent.name
    return tuple(
        [
            ChildMessage(above.run_id, AgentWaiting(run_id, name, reason, wait.detail, above.call_id), key)
            for above in lineage.above
        ]
    )


async def _notify_resumed(run: OwnedRun) -> None:
    """Tell all ancestors that the run no longer waits. The messages and their record are one commit."""
    lineage, run_id, name = run.state.lineage, run.origin.run_id, run.state.agent.name
    assert lineage is not None, "only a child run reports its waits to its ancestors"
    key = f"{run_id} goes on at {run.state.sequence}"
    messages = [
        ChildMessage(above.run_id, AgentAnswered(run_id, name, above.call_id), key) for above in lineage.above
    ]
    await run.intend(AgentAnswered(run_id, name), tell=messages)


# ── Evaluation ──


async def _begin_evaluation(step: Evaluate, run: OwnedRun, deps: ChildDeps) -> None:
    """Begin the run that evaluates this one, or record why there is none."""
    role: Role = step.role
    names = (f"@{role}-{number}" for number in count(len(run.state.tree.children)))
    lineage = make_lineage(run.state, next(name for name in names if not run.state.knows_call(name)), role)
    message = user(make_sendable(make_evaluation_prompt(role, run.state, step.end)))
    try:
        agent = await deps.agents.get_agent(step.agent, run.state.agent)
        deps.models.resolve(agent.model, agent.provider)
        deps.tools.select(agent.tools, agent)
        seconds, session = EVALUATION_SECONDS, SessionId(run.worker.ids("ses"))
        child = _Child(
            agent=agent,
            message=message,
            session_id=session,
            lineage=lineage,
            timeout_seconds=seconds + QUEUE_SECONDS,
            deadline=seconds,
        )
        event, child_run = await _make_child(child, run, deps, end=step.end)
    except UsageError as error:
        run.record(make_missing_verdict(role == "quality", step.agent, f"It was not asked: {error}"))
        return
    await run.intend(*step.events, event, begin=(child_run,))
