"""Collects the record of a run and its session, and replays the run."""

import asyncio
from collections.abc import Sequence

import msgspec

from treadle.domain.agents import AgentSpec
from treadle.domain.commands import AskUsage, UndoSession
from treadle.domain.envelope import Event
from treadle.domain.events import CommandObeyed, RunEnd, RunQueued
from treadle.domain.ids import RunId, SessionId
from treadle.engine.redaction import redact_value
from treadle.operations.journal_pages import read_stored_events
from treadle.ports.approvals import Approvals
from treadle.ports.journal import Journal, RunRecord
from treadle.ports.sessions import Sessions
from treadle.ports.tool import Toolbox
from treadle.ports.vault import Redactor
from treadle.replay.recording import PastRun, Recorded
from treadle.replay.replay import Replayed, replay

MAX_EARLIER_RUNS = 20
"""Maximum number of earlier runs whose token counts may have been cached."""


async def replay_stored_run(
    run_id: RunId,
    journal: Journal,
    sessions: Sessions,
    approvals: Approvals,
    tools: Toolbox,
    agent: AgentSpec | None = None,
) -> Replayed:
    """Return the replay of a run, with the settings of `agent` if it is given. Earlier runs of the session are read
    only if they may explain a divergence."""
    record = await read_recorded_run(run_id, journal, sessions, approvals)
    if agent is not None:
        record = use_agent(record, agent)
    found = await asyncio.to_thread(replay, record, tools)
    if found.divergence is None:
        return found
    record = await add_earlier_runs(record, journal, sessions)
    return await asyncio.to_thread(replay, record, tools) if record.earlier else found


def use_agent(recorded: Recorded, agent: AgentSpec) -> Recorded:
    """Return the record of a run as if it had been queued with these settings. It works in the same folder."""
    first, *others = recorded.events
    queued = first.data
    assert isinstance(queued, RunQueued), f"the first event of {first.run_id} is {first.type}"
    agent = msgspec.structs.replace(agent, workspace=queued.agent.workspace)
    changed = msgspec.structs.replace(queued, agent=agent)
    event = msgspec.structs.replace(first, data=changed, raw=msgspec.json.encode(changed))
    return msgspec.structs.replace(recorded, events=(event, *others))


async def add_earlier_runs(record: Recorded, journal: Journal, sessions: Sessions) -> Recorded:
    """Return the record with the runs directly before it in its session."""
    before = _list_earlier_runs(record.origin.run_id, await sessions.runs(record.origin.session_id))
    earlier = tuple([await _read_past_run(run, journal) for run in before[-MAX_EARLIER_RUNS:]])
    return msgspec.structs.replace(record, earlier=earlier)


async def read_recorded_run(run_id: RunId, journal: Journal, sessions: Sessions, approvals: Approvals) -> Recorded:
    """Return the journal of a run, and the state of its session before it."""
    events = await _read_events(run_id, journal)
    origin = events[0].origin
    before = _list_earlier_runs(run_id, await sessions.runs(origin.session_id))
    history = tuple(await journal.history(run_id))
    segments = tuple([
        segment for segment in await sessions.segments(origin.session_id) if segment.run_id in before
    ])  # fmt: skip
    queued = events[0].data
    undoes = isinstance(queued, RunQueued) and isinstance(queued.command, UndoSession)
    needed = dict.fromkeys(segment.run_id for segment in segments) if undoes else {}
    return Recorded(
        origin=origin,
        events=events,
        history=history,
        segments=segments,
        ends=await _read_earlier_ends(events, origin.session_id, sessions, journal),
        earlier=(),
        others={run: await _read_past_run(run, journal) for run in needed},
        grants=tuple(await approvals.grants(run_id)),
    )


def redact_replay(replayed: Replayed, redactor: Redactor) -> Replayed:
    """Return the result without secrets. The events of the current code have not been redacted yet."""
    if redactor.is_idle or (replayed.divergence is None and not replayed.wording):
        return replayed
    return msgspec.convert(redact_value(msgspec.to_builtins(replayed), redactor), Replayed)


def _list_earlier_runs(run_id: RunId, runs: Sequence[RunRecord]) -> list[RunId]:
    ids = [record.origin.run_id for record in runs]
    return ids[: ids.index(run_id)] if run_id in ids else []


async def _read_earlier_ends(
    events: Sequence[Event], session_id: SessionId, sessions: Sessions, journal: Journal
) -> tuple[RunEnd, ...]:
    """Return the ends of the runs before a usage command."""
    obeyed = next((event for event in events if isinstance(event.data, CommandObeyed)), None)
    queued = events[0].data
    if obeyed is None or not isinstance(queued, RunQueued) or not isinstance(queued.command, AskUsage):
        return ()
    found: list[RunEnd] = []
    for record in await sessions.runs(session_id):
        if record.outcome is not None and record.origin.run_id != obeyed.run_id:
            [last] = await journal.read(record.origin.run_id, record.sequence - 1, 1)
            if isinstance(last.data, RunEnd) and last.timestamp <= obeyed.timestamp:
                found.append(last.data)
    return tuple(found)


async def _read_past_run(run_id: RunId, journal: Journal) -> PastRun:
    return PastRun(tuple(await journal.history(run_id)), await _read_events(run_id, journal))


async def _read_events(run_id: RunId, journal: Journal) -> tuple[Event, ...]:
    return tuple([event async for event in read_stored_events(journal, run_id)])
