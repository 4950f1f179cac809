"""The settings of a home: the content of `config.yaml`."""

from typing import Literal

from msgspec import Struct

from treadle.domain.channels import ChannelConfig, check_channel_names
from treadle.domain.limits import DEFAULT_STREAM_MEMORY_BYTES, MB
from treadle.domain.mcp_servers import McpServerSettings, McpSettings, check_server_names
from treadle.domain.models import ModelFacts
from treadle.domain.providers import ProviderConfig
from treadle.domain.quotas import CreditRate
from treadle.domain.web_search import WebSearchSettings

DEFAULT_PORT = 8420
MAX_PROCESSES = 256


class Defaults(Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults for agents."""

    provider: str | None = None
    """The provider of models that are named without one."""
    model: str | None = None
    """The model of agents without `model`, and of the agent `default`, which is created on first use."""

    history_messages: int | None = None
    """`limits.history_messages` of agents that do not set it. Null: no limit."""

    def __post_init__(self) -> None:
        if self.model == "":
            raise ValueError("model must not be empty")
        if self.history_messages is not None and self.history_messages < 1:
            raise ValueError(f"history_messages must be 1 or more, found {self.history_messages}")


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of `treadle serve` and `treadle worker`."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = DEFAULT_PORT
    """The port to listen on. 0: any free port."""
    hosts: tuple[str, ...] = ()
    """Accepted `Host` headers, besides those of the loopback address."""
    origins: tuple[str, ...] = ()
    """Accepted `Origin` headers of other sites, for example `https://console.example.com`."""
    processes: int = 1
    """Processes of `treadle serve` behind the port. More than one needs PostgreSQL."""
    drain_seconds: float = 10.0
    """On PostgreSQL: how long a stopping process waits for its runs to reach a safe point."""
    streams_per_token: int = 64
    """Maximum event streams that one access token has open. The Unix socket has no such limit."""
    stream_memory: int = DEFAULT_STREAM_MEMORY_BYTES
    """Maximum bytes of events that wait for all readers of event streams together. Beyond that, the slowest readers
    are disconnected. They resume with `Last-Event-ID`."""

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise ValueError(f"processes must be from 1 to {MAX_PROCESSES}, found {self.processes}")
        if self.streams_per_token < 1:
            raise ValueError(f"streams_per_token must be 1 or more, found {self.streams_per_token}")
        if self.stream_memory < MB:
            raise ValueError(f"stream_memory must be at least {MB} bytes, found {self.stream_memory}")
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be from 0 to 65535, found {self.port}")
        if not 0 <= self.drain_seconds <= 3600:
            raise ValueError(f"drain_seconds must be from 0 to 3600, found {self.drain_seconds}")
        for origin in self.origins:
            if not origin.startswith(("http://", "https://")):
                raise ValueError(f"origins: `{origin}` must begin with http:// or https://")


class WebhookSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of webhooks."""

    allow_local: bool = False
    """Allow webhooks to loopback, link-local and metadata addresses."""


DefinitionStore = Literal["files", "database"]


class StorageSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where definitions are kept. On SQLite, always in files."""

    agents: DefinitionStore = "files"
    """`files`: each home has agents of its own. `database`: all processes on the PostgreSQL database have the same
    agents. A change of a file, in any home, reaches the others within a second."""
    skills: DefinitionStore = "files"
    """The same for approved skills."""


class HomeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `config.yaml`."""

    providers: dict[str, ProviderConfig] = {}
    """Model providers by name. An entry for a built-in provider overrides its address and keeps the rest."""
    defaults: Defaults = Defaults()
    """Defaults for agents."""
    aliases: dict[str, tuple[str, ...]] = {}
    """Short names of models. Each stands for a list: the first model that has a key and answers is used."""
    models: dict[str, ModelFacts] = {}
    """Facts about models, by `provider/model-id`. They override the built-in catalog."""
    server: ServerSettings = ServerSettings()
    """Settings of `treadle serve` and `treadle worker`."""
    webhooks: WebhookSettings = WebhookSettings()
    """Settings of webhooks."""
    web_search: WebSearchSettings = WebSearchSettings()
    """The engine of the tool `web_search`."""
    house_rules: str = ""
    """Text that every agent gets in its system prompt, after its persona."""
    credits: CreditRate = CreditRate()
    """The value of credits."""
    mcp_servers: dict[str, McpServerSettings] = {}
    """MCP servers by name. Their tools are named `server__tool`. `treadle mcp add` writes entries."""
    mcp: McpSettings = McpSettings()
    """When the tools of MCP servers are searched for instead of being listed."""
    storage: StorageSettings = StorageSettings()
    """Where definitions are kept."""
    channels: dict[str, ChannelConfig] = {}
    """Chat channels by name. `treadle serve` connects to them."""

    def __post_init__(self) -> None:
        check_server_names(self.mcp_servers)
        check_channel_names(self.channels)
        for alias, names in self.aliases.items():
            if not names:
                raise ValueError(f"aliases.{alias} must name at least one model")
        for name in self.providers:
            if not name or "/" in name:
                raise ValueError(f"the name `{name}` must not be empty and must not have a slash")
