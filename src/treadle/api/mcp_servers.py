"""MCP servers in programs: `McpServer` describes one, `McpMethods` lists, inspects and approves them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack

from treadle.api.option_hints import MCP_SERVER_HINTS, refuse_unknown_options
from treadle.config.yaml_files import to_struct
from treadle.domain.errors import ConfigError
from treadle.domain.mcp_servers import McpServerSettings, OAuthSettings
from treadle.domain.permissions import WorkspaceAccess
from treadle.domain.tools import Effect
from treadle.home.mcp_programs import Trust
from treadle.operations import mcp_servers
from treadle.operations.mcp_status import McpInspection, McpServerView
from treadle.operations.operation import NoParameters, Operation, Q, R

_T = TypeVar("_T")


class McpServerOptions(TypedDict, total=False):
    """The fields of an entry under `mcp_servers`: docs/reference/settings.md."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    workspace: WorkspaceAccess | None
    url: str
    headers: Mapping[str, str]
    type: Literal["stdio", "http", "streamable-http"] | None
    network: bool
    readable: Sequence[str]
    writable: Sequence[str]
    enabled: bool
    tools: Sequence[str]
    """The tools to offer, by the server's own names: names or globs."""
    trusted: bool
    effects: Mapping[str, Effect]
    repeatable: Sequence[str]
    timeout: float
    start_timeout: float
    oauth: OAuthSettings | Mapping[str, Any] | None


class McpServer:
    """An MCP server of an agent: a program (`command`), or an address (`url`).

        server = treadle.McpServer(command="mcp-server-time", approve=True)
        agent = treadle.Agent(model="provider/model-id", mcp_servers={"time": server})

    The parameters are the fields of an entry under `mcp_servers` (docs/mcp.md). With `approve=True` the program
    trusts the server: the tools that it offers when it is first used are approved, and no others later. With
    `approve="always"` they are approved again whenever the server or its settings have changed. Without it, approve
    the server with `engine.mcp.approve`. Secrets in `env`, `headers`, `args` and `url` are stored in the vault."""

    def __init__(self, *, approve: Trust = False, **options: Unpack[McpServerOptions]) -> None:
        refuse_unknown_options(options, McpServerOptions, "an MCP server", MCP_SERVER_HINTS)
        if approve not in (True, False, "always"):
            raise ConfigError(f'approve={approve!r}: it is True, False or "always".')
        self.settings = to_struct(options, McpServerSettings, "MCP server")
        self.approve: Trust = approve

    def __repr__(self) -> str:
        return f"McpServer({(self.settings.url or self.settings.command)!r})"


McpServerLike = McpServer | McpServerSettings | Mapping[str, Any]


def split_servers(
    servers: Mapping[str, McpServerLike],
) -> tuple[dict[str, McpServerSettings | Mapping[str, Any]], dict[str, Trust]]:
    """Return the settings of servers, and which of them the program trusts."""
    settings: dict[str, McpServerSettings | Mapping[str, Any]] = {}
    trust: dict[str, Trust] = {}
    for name, server in servers.items():
        given = server
        if isinstance(given, Mapping) and "approve" in given:
            given = McpServer(**given)
        if isinstance(given, McpServer):
            trust[name] = given.approve
        settings[name] = given.settings if isinstance(given, McpServer) else given
    return settings, trust


class _Caller(Protocol):
    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R: ...


class McpMethods:
    """The MCP servers that an engine or a server knows: those of its home, and those of the agents of a program.

    `agent` names the agent whose server is meant. It can be left out if the home, or only one agent, has a server
    with the name."""

    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    async def list(self) -> Sequence[McpServerView]:
        """Return the servers with their approvals, approved tools and connections. Nothing is connected for it."""
        return (await self._caller.call(mcp_servers.LIST, NoParameters())).items

    async def inspect(
        self, name: str, *, agent: str | None = None, allow_write: bool = False, pin_content: bool = False
    ) -> McpInspection:
        """Connect to a server, and return its tools, compared with those that are approved."""
        request = mcp_servers.InspectMcpServer(name, agent, allow_write, pin_content)
        return await self._caller.call(mcp_servers.INSPECT, request)

    async def approve(
        self,
        name: str,
        *,
        agent: str | None = None,
        digest: str | None = None,
        allow_write: bool = False,
        pin_content: bool = False,
    ) -> McpServerView:
        """Approve a server with its settings and the tools that it offers now, or only if they have the `digest` of
        an inspection.

        With `allow_write` its program may write the workspace although it has secrets or the network. With
        `pin_content` code in places that a run can write is pinned as it is."""
        if digest is None:
            found = await self.inspect(name, agent=agent, allow_write=allow_write, pin_content=pin_content)
            agent, digest = found.agent, found.digest
        request = mcp_servers.ApproveMcpServer(name, digest, agent, allow_write, pin_content)
        return await self._caller.call(mcp_servers.APPROVE, request)

    async def revoke(self, name: str, *, agent: str | None = None) -> None:
        """Revoke the approval of a server. Its tools cannot be called any more."""
        await self._caller.call(mcp_servers.REVOKE, mcp_servers.OneMcpServer(name, agent))


class McpMethodsSync:
    """The methods of `McpMethods`, for programs without an event loop."""

    def __init__(self, methods: McpMethods, do: Callable[[Any], Any]) -> None:
        self._methods = methods
        self._do = do

    def list(self) -> Sequence[McpServerView]:
        """Return the servers with their approvals, approved tools and connections."""
        return self._wait(self._methods.list())

    def inspect(
        self, name: str, *, agent: str | None = None, allow_write: bool = False, pin_content: bool = False
    ) -> McpInspection:
        """Connect to a server, and return its tools, compared with those that are approved."""
        return self._wait(
            self._methods.inspect(name, agent=agent, allow_write=allow_write, pin_content=pin_content)
        )

    def approve(
        self,
        name: str,
        *,
        agent: str | None = None,
        digest: str | None = None,
        allow_write: bool = False,
        pin_content: bool = False,
    ) -> McpServerView:
        """Approve a server with its settings and the tools that it offers now, or only if they have the `digest` of
        an inspection."""
        return self._wait(
            self._methods.approve(
                name, agent=agent, digest=digest, allow_write=allow_write, pin_content=pin_content
            )
        )

    def revoke(self, name: str, *, agent: str | None = None) -> None:
        """Revoke the approval of a server. Its tools cannot be called any more."""
        self._wait(self._methods.revoke(name, agent=agent))

    def _wait(self, work: Awaitable[_T]) -> _T:
        return self._do(work)
