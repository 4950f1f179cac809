"""What the rules for approvals look at in a call of a file tool: the path alone, as plain as it can be written.

Otherwise `docs/../.env` would pass where `docs/*` may, and a rule would have to fit the content of a file too."""

from glob import escape
from posixpath import normpath
from typing import Any

from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Observation, Subjects, Tool, ToolContext


class JudgedByPath:
    """A tool that takes a `path`."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def parse(self, arguments: str) -> Any:
        return self._tool.parse(arguments)

    def subjects(self, arguments: Any) -> Subjects:
        path = normpath(arguments.path)
        absolute = path.startswith("/")
        opaque = "it names a file by an absolute path, which rules for relative ones do not see"
        return Subjects((path,), opaque if absolute else None, pattern=escape(path))

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        return await self._tool.run(arguments, context)
