"""What approval rules see of a call of a file tool: only the normalized path.

Otherwise `docs/../.env` would pass where `docs/*` is allowed, and a rule would have to match the content of a file
too."""

from collections.abc import Sequence
from glob import escape
from posixpath import normpath
from typing import Any

import msgspec

from treadle.domain.edits.patch_format import (
    DeleteFile,
    PatchFault,
    UpdateFile,
    list_patch_paths,
    list_paths,
    parse_patch,
)
from treadle.domain.file_fingerprints import FileFingerprint
from treadle.domain.tools import ToolSpec
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
from treadle.tools.files.fingerprints import take_fingerprints
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
EDIT_TOOL, PATCH_TOOL = "edit_file", "apply_patch"
PATCH_ARGUMENT = "input"
_ABSOLUTE = "it names a file by an absolute path, which rules for relative ones do not see"


class PathJudgedTool(ToolDecorator):
    """A tool that takes paths. Before it is allowed, they are resolved: a private place needs a reviewer, and so
    does writing a file that another program executes later."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool)
        self._kinds = PRIVATE_TO_WRITE if tool.spec.name == WRITE_ONLY_TOOL else PRIVATE_TO_READ
        is_edit = tool.spec.name == EDIT_TOOL
        self._spec = msgspec.structs.replace(tool.spec, patch_form=PATCH_TOOL) if is_edit else tool.spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def list_paths(self, arguments: Any) -> tuple[str, ...]:
        """Return the paths of a call."""
        return (arguments.path,)

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        allowed = find_listed_places(scene.sandbox)
        try:
            with open_workspace(scene.workspace, scene.hidden, allowed, self._kinds, scene.engine) as workspace:
                found = [
                    concern
                    for path in self.list_paths(arguments)
                    for concern in (self._find_private(workspace, path), self._find_executed(workspace, path))
                    if concern is not None
                ]
        except ToolError:  # the tool itself reports what is wrong
            return None
        return _join_concerns(found)

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

    async def take_fingerprints(self, arguments: Any, scene: CallEnvironment) -> tuple[FileFingerprint, ...]:
        """Return what the files that the call changes contain. Private ones are not read."""
        if self.spec.effect != "write":
            return ()
        try:
            with open_workspace(scene.workspace, scene.hidden, engine=scene.engine) as workspace:
                return take_fingerprints(workspace, self.list_paths(arguments))
        except ToolError:  # the tool itself reports what is wrong
            return ()

    def subjects(self, arguments: Any) -> Subjects:
        path = normpath(arguments.path)
        return Subjects((path,), _ABSOLUTE if path.startswith("/") else None, pattern=escape(path))


class PatchJudgedTool(PathJudgedTool):
    """A tool that takes a patch. The rules for editing files apply to each file that it updates, and those for
    writing files to each that it adds, moves or deletes."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(tool)
        aliases = (EDIT_TOOL, WRITE_ONLY_TOOL)
        self._spec = msgspec.structs.replace(tool.spec, patches=(PATCH_ARGUMENT,), aliases=aliases)

    def list_paths(self, arguments: Any) -> tuple[str, ...]:
        return list_patch_paths(arguments.input) or ()

    def subjects(self, arguments: Any) -> Subjects:
        try:
            patches = parse_patch(arguments.input)
        except PatchFault:  # the tool itself reports what is wrong
            return Subjects((), "it holds a patch that is not valid")
        texts: list[str] = []
        acts_as: list[str] = []
        removed = tuple([normpath(patch.path) for patch in patches if isinstance(patch, DeleteFile)])
        for patch in patches:
            paths = [normpath(path) for path in list_paths(patch)]
            if isinstance(patch, UpdateFile) and patch.hunks:
                texts.append(paths[0])
                acts_as.append(EDIT_TOOL)
            if not isinstance(patch, UpdateFile) or patch.move_to is not None:
                texts += paths
                acts_as += [WRITE_ONLY_TOOL] * len(paths)
        opaque = _ABSOLUTE if any(path.startswith("/") for path in texts) else None
        pattern = escape(texts[0]) if len(texts) == 1 and not removed else None
        return Subjects(tuple(texts), opaque, pattern=pattern, acts_as=tuple(acts_as), removed=removed)


def _join_concerns(concerns: Sequence[Concern]) -> Concern | None:
    """Return one concern for all, which is private if one of them is."""
    if len(concerns) < 2:
        return concerns[0] if concerns else None
    kind = "private" if any(concern.kind == "private" for concern in concerns) else concerns[0].kind
    places = tuple(dict.fromkeys(place for concern in concerns for place in concern.places))
    return Concern(kind, "; ".join(concern.reason for concern in concerns), places)
