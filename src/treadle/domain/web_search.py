"""The settings of web search, and its results."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

SearchEngineName = Literal["searxng", "brave", "tavily"]
DEFAULT_ADDRESSES: Mapping[SearchEngineName, str] = {
    "brave": "https://api.search.brave.com",
    "tavily": "https://api.tavily.com",
}
KEY_VARIABLES: Mapping[SearchEngineName, str] = {"brave": "BRAVE_API_KEY", "tavily": "TAVILY_API_KEY"}


class WebSearchSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The engine of the tool `web_search`."""

    engine: SearchEngineName | None = None
    """`searxng`, `brave` or `tavily`. Null: there is no web search."""
    base_url: str | None = None
    """The address of the engine. SearXNG needs one, for example `http://127.0.0.1:8888`."""
    api_key_env: str | None = None
    """The secret, or else the variable, that holds the key. Null: `BRAVE_API_KEY` or `TAVILY_API_KEY`."""

    def __post_init__(self) -> None:
        if self.engine == "searxng" and not self.base_url:
            raise ValueError("base_url is missing: SearXNG is self-hosted, so write the address of your own server")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must be an http or https URL, found `{self.base_url}`")

    @property
    def address(self) -> str:
        """The address of the engine, without a slash at its end."""
        default = "" if self.engine is None else DEFAULT_ADDRESSES.get(self.engine, "")
        return (self.base_url or default).rstrip("/")

    @property
    def key_variable(self) -> str | None:
        return self.api_key_env or (None if self.engine is None else KEY_VARIABLES.get(self.engine))
