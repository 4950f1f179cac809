"""What approval rules see of a call of a file tool: only the normalized path.

Otherwise `docs/../.env` would pass where `docs/*` is allowed, and a rule would have to match the content of a file
too."""

from glob import escape
from posixpath import normpath
from typing import Any

import msgspec

from treadle.ports.tool import (
    EXECUTED_PREFIX,
    PRIVATE_PREFIX,
    CallEnvironment,
    Concern,
    Subjects,
    Tool,
    ToolError,
)
from treadle.tools.files.faults import find_fault
from treadle.tools.files.name_display import display_name
from treadle.tools.files.private_files import (
    LINKED_PLACE,
    PRIVATE_TO_READ,
    PRIVATE_TO_WRITE,
    find_listed_places,
)
from treadle.tools.files.workspace import OpenWorkspace, open_workspace
from treadle.tools.toolset import ToolDecorator

WRITE_ONLY_TOOL = "write_file"
"""The tool that reveals nothing of a file's previous content."""


class PathJudgedTool(ToolDecorator):
    """A tool that takes a `path`. Before it is allowed, the path is resolved: a private place needs a reviewer, and
    so does writing a file that another program executes later."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool)
        self._kinds = PRIVATE_TO_WRITE if tool.spec.name == WRITE_ONLY_TOOL else PRIVATE_TO_READ

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        allowed = find_listed_places(scene.sandbox)
        try:
            with open_workspace(scene.workspace, scene.hidden, allowed, self._kinds, scene.engine) as workspace:
                private = self._find_private(workspace, arguments.path)
                executed = self._find_executed(workspace, arguments.path)
        except ToolError:  # the tool itself reports what is wrong
            return None
        if private is None or executed is None:
            return private or executed
        return msgspec.structs.replace(private, reason=f"{private.reason}; {executed.reason}")

    def _find_private(self, workspace: OpenWorkspace, path: str) -> Concern | None:
        try:
            with workspace.locate_unvetted(path) as place:
                privacy, status = workspace.privacy, place.status()
                full_path, private = privacy.full_path(place.path), privacy.find_place(place.path)
                is_linked = private is None and status is not None and privacy.is_linked(place.path, status)
        except ToolError:  # it is not there
            return None
        if private is None and not is_linked:
            return None
        verb = "changes" if self.spec.effect == "write" else "reads"
        what = LINKED_PLACE if private is None else private.name
        return Concern(
            "private", f"{PRIVATE_PREFIX}it {verb} {display_name(full_path)} ({display_name(what)})", (full_path,)
        )

    def _find_executed(self, workspace: OpenWorkspace, path: str) -> Concern | None:
        """Return a concern if the call writes a file that another program executes later."""
        if self.spec.effect != "write":
            return None
        resolved = workspace.resolve_to_write(path)
        full_path = workspace.privacy.full_path(resolved)
        found = workspace.protection.find_executed(resolved)
        if found is None or workspace.protection.find_place(resolved) is not None:  # the tool refuses the latter
            return None
        reason = f"it writes {display_name(full_path)}, which {found.by} executes later ({found.name})"
        return Concern("executed", f"{EXECUTED_PREFIX}{reason}", (full_path,))

    async def find_fault(self, arguments: Any, scene: CallEnvironment) -> str | None:
        """Return why the call could not succeed, as far as that is known without a private place."""
        return find_fault(self.spec.name, arguments, scene, PRIVATE_TO_READ)

    def subjects(self, arguments: Any) -> Subjects:
        path = normpath(arguments.path)
        absolute = path.startswith("/")
        opaque = "it names a file by an absolute path, which rules for relative ones do not see"
        return Subjects((path,), opaque if absolute else None, pattern=escape(path))
