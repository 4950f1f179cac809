"""What the rules for approvals look at in a call of a file tool: the path alone, as plain as it can be written.

Otherwise `docs/../.env` would pass where `docs/*` may, and a rule would have to fit the content of a file too."""

from glob import escape
from posixpath import normpath
from typing import Any

from treadle.ports.tool import PRIVATE_PREFIX, CallEnvironment, Concern, Subjects, Tool, ToolError
from treadle.tools.files.name_display import display_name
from treadle.tools.files.private_files import (
    LINKED_PLACE,
    REFUSED_FOR_READING,
    REFUSED_FOR_WRITING,
    find_listed_places,
)
from treadle.tools.files.workspace import open_workspace
from treadle.tools.toolset import ToolDecorator

WRITE_ONLY_TOOL = "write_file"
"""The tool that shows nothing of what was in a file."""


class PathJudgedTool(ToolDecorator):
    """A tool that takes a `path`. Before it is allowed, the path is resolved: a private place needs a reviewer."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool)
        self._kinds = REFUSED_FOR_WRITING if tool.spec.name == WRITE_ONLY_TOOL else REFUSED_FOR_READING

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        try:
            with (
                open_workspace(
                    scene.workspace, scene.hidden, find_listed_places(scene.sandbox), self._kinds
                ) as workspace,
                workspace.unvetted(arguments.path) as place,
            ):
                privacy, status = workspace.privacy, place.status()
                whole, found = privacy.whole(place.path), privacy.place_of(place.path)
                is_linked = found is None and status is not None and privacy.is_linked(place.path, status)
        except ToolError:  # the tool itself will say what is wrong
            return None
        if found is None and not is_linked:
            return None
        does = "changes" if self.spec.effect == "write" else "reads"
        what = LINKED_PLACE if found is None else found.name
        return Concern(
            "private", f"{PRIVATE_PREFIX}it {does} {display_name(whole)} ({display_name(what)})", (whole,)
        )

    def subjects(self, arguments: Any) -> Subjects:
        path = normpath(arguments.path)
        absolute = path.startswith("/")
        opaque = "it names a file by an absolute path, which rules for relative ones do not see"
        return Subjects((path,), opaque if absolute else None, pattern=escape(path))
