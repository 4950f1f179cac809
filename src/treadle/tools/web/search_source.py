"""`web_search` as a source of tools: it exists while an engine is configured."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from treadle.domain.agents import AgentSpec
from treadle.domain.web_search import WebSearchSettings
from treadle.ports.tool import Tool
from treadle.tools.web.search import make_web_search
from treadle.tools.web.search_engines import FindKey, HttpSearchEngine

NAME = "web_search"
HOW_TO_CONFIGURE = (
    "Write `web_search: {engine: searxng, base_url: http://127.0.0.1:8888}` into config.yaml, or `web_search: "
    "{engine: brave}` and `treadle vault set BRAVE_API_KEY`, or the same with tavily."
)


class WebSearchSource:
    """Implements `ports.tool.ToolSource`. The settings are read when they are needed."""

    def __init__(self, settings: Callable[[], WebSearchSettings], find_key: FindKey) -> None:
        self._settings = settings
        self._find_key = find_key
        self._made: tuple[WebSearchSettings, Tool] | None = None

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None:
        settings = self._settings()
        if name != NAME or settings.engine is None:
            return None
        if self._made is None or self._made[0] != settings:
            self._made = (settings, make_web_search(HttpSearchEngine(settings, self._find_key)))
        return self._made[1]

    def names(self, glob: str, agent: AgentSpec | None = None) -> Iterable[str]:
        return (NAME,) if self._settings().engine is not None and fnmatchcase(NAME, glob) else ()

    def explain(self, name: str, agent: AgentSpec | None = None) -> str | None:
        return f"Web search is not configured. {HOW_TO_CONFIGURE}" if name == NAME else None
