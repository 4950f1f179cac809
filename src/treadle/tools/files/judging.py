"""What the rules for approvals look at in a call of a file tool: the path alone, as plain as it can be written.

Otherwise `docs/../.env` would pass where `docs/*` may, and a rule would have to fit the content of a file too."""

from glob import escape
from posixpath import normpath
from typing import Any

from treadle.ports.tool import Subjects
from treadle.tools.toolset import Around


class JudgedByPath(Around):
    """A tool that takes a `path`."""

    def subjects(self, arguments: Any) -> Subjects:
        path = normpath(arguments.path)
        absolute = path.startswith("/")
        opaque = "it names a file by an absolute path, which rules for relative ones do not see"
        return Subjects((path,), opaque if absolute else None, pattern=escape(path))
