"""The settings of MCP servers, in `config.yaml` of the home and of an agent."""

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

from treadle.domain.messages import Image
from treadle.domain.permissions import WorkspaceAccess
from treadle.domain.tools import Effect

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,31}")
McpServerName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_NAME.pattern}$"})]
SEPARATOR = "__"
"""Between the name of a server and the name of a tool. The name of a server cannot contain it."""
WORKSPACE_REF = "{{workspace}}"
"""In an argument or a variable of a server: the path of the workspace."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class OAuthSettings(Struct, frozen=True, omit_defaults=True):
    """How to sign in to a remote server. `treadle mcp login` needs none of it if the server registers clients."""

    client_id: str | None = None
    """The id of a client that is registered already. Null: register one, or use `client_metadata_url`."""
    client_secret: str | None = None
    """Its secret, as `{{vault:NAME}}`."""
    client_metadata_url: str | None = None
    """The address of a client metadata document, which serves as the client id where the server supports it."""
    scopes: tuple[str, ...] = ()
    """The scopes to request. Empty: those that the server asks for."""
    port: int = 0
    """The port of the local address to which the browser returns. 0: any free port."""


class McpServerSettings(Struct, frozen=True, omit_defaults=True):
    """An MCP server: a program (`command`), or an address (`url`)."""

    command: str | None = None
    """The program to start, for a server on standard input and output."""
    args: tuple[str, ...] = ()
    """Its arguments. `{{workspace}}` stands for the path of the workspace."""
    env: dict[str, str] = {}
    """Its additional environment variables. Give secrets as `{{vault:NAME}}`, and the path of the workspace as
    `{{workspace}}`."""
    cwd: str | None = None
    """The folder in which it starts: a whole path that no run can write. Null: an empty folder of its own."""
    workspace: WorkspaceAccess | None = None
    """What the program may do with the files of the workspace. Null: `none` if it has secrets or the network, else
    `read`. `write` together with secrets or the network needs `treadle mcp approve --allow-write`."""
    url: str | None = None
    """The address of a server that speaks streamable HTTP."""
    headers: dict[str, str] = {}
    """Additional request headers. Give secrets as `{{vault:NAME}}`."""
    type: Literal["stdio", "http", "streamable-http"] | None = None
    """The transport, as other tools write it. Null: `stdio` with a command, `http` with an address."""
    network: bool = False
    """Give the program access to the network."""
    readable: tuple[str, ...] = ()
    """Additional folders that the program can read, besides the workspace."""
    writable: tuple[str, ...] = ()
    """Additional folders that the program can write, besides the workspace."""
    enabled: bool = True
    """Offer its tools. False: keep the entry, but do not use it."""
    tools: tuple[str, ...] = ("*",)
    """The tools to offer, by the server's own names: names or globs."""
    trusted: bool = False
    """Believe what the server says about the effects of its tools (its annotations)."""
    effects: dict[str, Effect] = {}
    """The effect of tools, by the server's own name or a glob. Default: `external`, the most cautious one."""
    repeatable: tuple[str, ...] = ()
    """Tools that may run again if it is unknown whether they ran: names or globs."""
    timeout: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 86400})] = 120.0
    """Maximum seconds of one call."""
    start_timeout: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 600})] = 30.0
    """Maximum seconds until the server has started and answered."""
    oauth: OAuthSettings | None = None
    """How to sign in to a remote server. Null: what the server proposes."""

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError("command or url must be given, and not both")
        if self.command == "":
            raise ValueError("command must not be empty")
        if self.type is not None and (self.type == "stdio") != (self.command is not None):
            raise ValueError(f"type {self.type} does not fit: a command is `stdio`, a url is `http`")
        if self.url is not None:
            _check_url(self.url)
            if self.workspace is not None:
                raise ValueError("workspace must not be given with a url: only programs see files")
        if not 0 < self.timeout <= 86400 or not 0 < self.start_timeout <= 600:
            raise ValueError("timeout must be from 0 to 86400, start_timeout from 0 to 600 seconds")

    @property
    def is_remote(self) -> bool:
        return self.url is not None


class McpSettings(Struct, frozen=True, omit_defaults=True):
    """When the tools of MCP servers are searched for instead of being listed."""

    search_above_tools: int = 40
    """Number of MCP tools of an agent above which the model gets a search tool instead of all schemas."""
    search_above_share: float = 0.1
    """Share of the context window above which the schemas of MCP tools are replaced by a search tool."""

    def __post_init__(self) -> None:
        if self.search_above_tools < 0:
            raise ValueError("search_above_tools must be 0 or more")
        if not 0 <= self.search_above_share <= 1:
            raise ValueError("search_above_share must be from 0 to 1")


def check_server_names(servers: dict[str, McpServerSettings]) -> None:
    """Raise ValueError if a server has a name that cannot be part of the name of a tool."""
    for name in servers:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"mcp_servers: the name `{name}` must be 1 to 32 letters, digits, dashes or single underscores"
            )


def _check_url(url: str) -> None:
    scheme, separator, rest = url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if not separator or not host or scheme not in ("http", "https"):
        raise ValueError("url must begin with https:// (or http:// on this machine)")
    if "@" in host:
        raise ValueError("url must not contain a user or a password; use headers")
    if scheme == "http" and not host.startswith(LOOPBACK):
        raise ValueError("url must begin with https://, unless the server is on this machine")


class Consent(Struct, frozen=True):
    """What the approval of a server allows explicitly."""

    write: bool = False
    """The program may write the workspace although it has secrets or the network."""
    content: bool = False
    """Code in places that a run can write is pinned as it is now."""

    @property
    def flags(self) -> str:
        """The options of `treadle mcp approve` that give it."""
        return f"{' --allow-write' if self.write else ''}{' --pin-content' if self.content else ''}"


NO_CONSENT = Consent()


class McpPromptArgument(Struct, frozen=True):
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


class McpPrompt(Struct, frozen=True):
    """A prompt of an MCP server. All of it is untrusted."""

    server: str
    name: str
    description: str = ""
    arguments: tuple[McpPromptArgument, ...] = ()


class McpPromptMessage(Struct, frozen=True):
    """The content of a prompt. All of it is untrusted."""

    text: str
    images: tuple[Image, ...] = ()


McpConnectionState = Literal["starting", "connected", "failed", "closed"]


class McpConnectionView(Struct, frozen=True):
    """A connection of this process to an MCP server."""

    state: McpConnectionState
    workspace: str
    reason: str
    """Why it failed, or why the last one was lost."""
    calls: int
    """Successful calls so far."""
    retry_in: float | None
    """Seconds until the next attempt is possible."""
