"""What a tool finds on this machine before a call: what rules look at, what needs a reviewer, the files that it
would change, and whether it could succeed at all. The tool answers; it may be third-party code."""

from typing import Any

import msgspec

from treadle.core.tools.ledger import Call
from treadle.core.tools.modes import READING_TOOL
from treadle.core.tools.permissions import rule_on_call
from treadle.domain.errors import UsageError
from treadle.domain.events import ToolCallError
from treadle.domain.excerpts import place_excerpt
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.tools import ToolSpec
from treadle.engine.call_failures import CallRefused, make_failure
from treadle.engine.deps import ToolDeps
from treadle.engine.owned_run import OwnedRun
from treadle.ports.tool import CallEnvironment, Concern, Subjects, Tool

"""The rules for this tool decide whether the agent may know what a file contains."""


def find_subjects(call: Call, tool: Tool, arguments: Any) -> Subjects:
    """Return what rules look at."""
    try:
        return tool.subjects(arguments)
    except Exception as raised:  # tools may be third-party code
        raise make_failure(call, raised) from raised


async def assess_subjects(call: Call, tool: Tool, arguments: Any, run: OwnedRun, deps: ToolDeps) -> Subjects:
    """Return what rules look at, with what the tool finds on this machine."""
    subjects = find_subjects(call, tool, arguments)
    concern = await assess(call, tool, arguments, run, deps)
    if concern is None:
        return subjects
    # A rule for all such calls cannot permit this one, so none is offered.
    pattern = None if concern.overrides_rules else subjects.pattern
    return msgspec.structs.replace(subjects, concern=concern, pattern=pattern)


async def assess(call: Call, tool: Tool, arguments: Any, run: OwnedRun, deps: ToolDeps) -> Concern | None:
    """Return what the tool finds on this machine that needs a reviewer."""
    find_concern = getattr(tool, "assess", None)
    if find_concern is None or (scene := _make_scene(call, run, deps)) is None:
        return None
    try:
        return await find_concern(arguments, scene)
    except Exception as raised:  # tools may be third-party code
        raise make_failure(call, raised) from raised


async def take_fingerprints(
    call: Call, tool: Tool, arguments: Any, run: OwnedRun, deps: ToolDeps
) -> tuple[FileFingerprint, ...]:
    """Return what the files contain that a call would change. It runs only while they still contain that."""
    take = getattr(tool, "take_fingerprints", None)
    if take is None or (scene := _make_scene(call, run, deps)) is None:
        return ()
    try:
        return await take(arguments, scene)
    except Exception as raised:  # tools may be third-party code
        raise make_failure(call, raised) from raised


async def check_fault(
    call: Call, tool: Tool, subjects: Subjects, arguments: Any, run: OwnedRun, deps: ToolDeps
) -> None:
    """Raise CallRefused if the call could not succeed, so that no reviewer is asked. A private place is not
    examined before it is approved."""
    find_fault = getattr(tool, "find_fault", None)
    if find_fault is None or (subjects.concern is not None and subjects.concern.kind == "private"):
        return
    if (scene := _make_scene(call, run, deps)) is None:
        return
    may_read = rule_on_call(run.state, ToolSpec(READING_TOOL, "", {}, effect="read"), subjects).verdict == "auto"
    try:
        fault = await find_fault(arguments, msgspec.structs.replace(scene, may_read=may_read))
    except Exception as raised:  # tools may be third-party code
        raise make_failure(call, raised) from raised
    if fault is not None:
        before = f"`{call.name}` was not run: "
        raise CallRefused(
            ToolCallError(
                call.call_id,
                call.name,
                "failed",
                before + fault,
                excerpt=place_excerpt(before, fault),
                cause="fault",
            )
        )


def _make_scene(call: Call, run: OwnedRun, deps: ToolDeps) -> CallEnvironment | None:
    """Return where a call would run, or None if there is no such folder, which is reported when the call runs."""
    agent = run.state.agent
    try:
        workspace = deps.workspace(agent)
    except UsageError:
        return None
    return CallEnvironment(call.call_id, workspace, agent.confinement, deps.hidden, deps.places)
