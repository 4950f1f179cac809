"""Which calls change files, and how their changes are recorded."""

import os
from contextlib import AbstractAsyncContextManager, nullcontext

from treadle.domain.errors import UsageError
from treadle.domain.file_versions import ChangingCall
from treadle.domain.ids import RunId
from treadle.domain.tools import ToolSpec
from treadle.engine.deps import ToolDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.tool_preparation import ReadyCall
from treadle.ports.tool import FileRecorder, NoRecorder, Tool

RECORDING_TOOLS = frozenset({"write_file", "edit_file", "apply_patch"})
"""The tools that record each file themselves, before they change it."""


def prepare_files(run: OwnedRun, deps: ToolDeps) -> None:
    """Begin to store the files of a run's folder if one of its tools may change them without naming them."""
    if any(spec.effect == "external" and _writes_unnamed(spec) for spec in run.state.tools.values()):
        try:
            folder = deps.workspace(run.state.agent)
        except UsageError:  # it is missing, which the calls report
            return
        deps.file_versions.prepare(_find_root(run), folder)


def watch_files(item: ReadyCall, run: OwnedRun, deps: ToolDeps) -> AbstractAsyncContextManager[None]:
    """Find what a call changes without naming it."""
    if not _changes_unnamed(item.tool) or (call := _make_changing_call(item, run, deps)) is None:
        return nullcontext()
    return deps.file_versions.watch(call)


def open_recorder(item: ReadyCall, run: OwnedRun, deps: ToolDeps) -> FileRecorder:
    """Return the recorder of a tool that names the files that it changes."""
    if item.tool.spec.name not in RECORDING_TOOLS or (call := _make_changing_call(item, run, deps)) is None:
        return NoRecorder()
    return deps.file_versions.open_recorder(call)


def _changes_unnamed(tool: Tool) -> bool:
    declared: bool | None = getattr(tool, "changes_files", None)
    return _writes_unnamed(tool.spec) if declared is None else declared


def _writes_unnamed(spec: ToolSpec) -> bool:
    return spec.writes and "workspace" in spec.needs and spec.name not in RECORDING_TOOLS and not spec.searchable


def _make_changing_call(item: ReadyCall, run: OwnedRun, deps: ToolDeps) -> ChangingCall | None:
    try:
        folder = os.path.realpath(deps.workspace(run.state.agent))
    except UsageError:  # it is missing, which the call reports
        return None
    now = run.worker.clock.now()
    return ChangingCall(_find_root(run), run.origin.run_id, item.call.call_id, folder, now)


def _find_root(run: OwnedRun) -> RunId:
    lineage = run.state.lineage
    return run.origin.run_id if lineage is None else lineage.root
