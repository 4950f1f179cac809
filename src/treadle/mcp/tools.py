"""The tools of MCP servers as tools of agents."""

import asyncio
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.events import McpConnected, McpDisconnected, McpFailed
from treadle.domain.inert_text import make_inert
from treadle.domain.mcp_servers import McpServerSettings
from treadle.domain.schemas import check_schema, find_mismatch, make_inert_schema
from treadle.domain.tools import Effect, ToolSpec
from treadle.mcp.approval_advice import ApprovalAdvice, Approver
from treadle.mcp.names import make_tool_name
from treadle.mcp.pins import PinnedContent, hash_tool
from treadle.mcp.pool import ServerPool
from treadle.mcp.server_target import ServerTarget
from treadle.ports.tool import (
    UNCONFINED_PREFIX,
    CallEnvironment,
    Concern,
    InvalidArguments,
    Observation,
    Subjects,
    ToolContext,
    ToolError,
    ToolTimeout,
)

if TYPE_CHECKING:
    from treadle.mcp.connection import ServerConnection

SPARE_SECONDS = 10.0
"""How much later than the timeouts of a server the engine stops a call: the server's own explain more."""
OUTCOME_UNKNOWN = "Whether it took effect is not known. Check before you do it again."
MAX_DESCRIPTION = 4000
"""Characters of a description that a model is shown."""


class ApprovedServer(Struct, frozen=True):
    """A configured server whose entry is approved."""

    name: str
    settings: McpServerSettings
    agent: str = ""
    """The agent whose file configures it; empty for a server of the home."""
    allows_write: bool = False
    """The approval allows its program to write the workspace although it has secrets or the network."""
    contents: tuple[PinnedContent, ...] = ()
    """Code that is pinned by content."""
    approver: Approver = "command"


class McpTool:
    """Implements `ports.tool.Tool` for one approved tool of a server."""

    def __init__(self, server: ApprovedServer, raw: Mapping[str, Any], pool: ServerPool) -> None:
        self._server = server
        self._raw_name = str(raw["name"])
        self._raw = raw
        self._pool = pool
        self._hash = ""
        self.spec = make_spec(server, raw)
        self._checks_arguments: bool | None = None

    def parse(self, arguments: str) -> dict[str, Any]:
        try:
            decoded: Any = msgspec.json.decode(arguments or "{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidArguments(f"the arguments are not valid JSON: {error}.") from None
        if not isinstance(decoded, dict):
            raise InvalidArguments("the arguments must be a JSON object.")
        if self._checks_arguments is None:
            self._checks_arguments = _is_usable(self.spec.schema)
        if self._checks_arguments and (wrong := find_mismatch(arguments or "{}", self.spec.schema)) is not None:
            raise InvalidArguments(f"the arguments do not match the schema: {wrong}.")
        return cast("dict[str, Any]", decoded)

    def subjects(self, arguments: Any) -> Subjects:
        return Subjects(tuple(_collect_texts(arguments)), pattern="*")

    async def assess(self, arguments: Any, scene: CallEnvironment) -> Concern | None:
        """Return a concern if the program of the server would run without a sandbox."""
        target = ServerTarget(self._server.name, self._server.settings, scene.workspace, scene.sandbox)
        gap = await self._pool.explain_missing_confinement(target)
        return Concern("unconfined", f"{UNCONFINED_PREFIX}{gap}") if gap else None

    async def find_fault(self, arguments: Any, scene: CallEnvironment) -> str | None:
        """Return that the sandbox of the server's program could not be checked."""
        try:
            await self.assess(arguments, scene)
        except ToolError as error:
            return str(error)
        return None

    async def run(self, arguments: Any, context: ToolContext) -> Observation:
        name, settings = self._server.name, self._server.settings
        workspace = context.workspace.resolve()
        target = ServerTarget(
            name=name,
            server=settings,
            workspace=workspace,
            policy=context.sandbox,
            user=context.user,
            owner=self._server.agent,
            allows_write=self._server.allows_write,
            contents=self._server.contents,
            approver=self._server.approver,
        )
        try:
            connection, is_new = await self._pool.connect(target)
        except ToolError as error:
            context.report(McpFailed(name, str(error)))
            raise
        if is_new:
            context.report(McpConnected(name, connection.title, connection.protocol, len(connection.tools)))
        self._check_pin(connection.hash_tool(self._raw_name))
        try:
            result = await self._call(connection, arguments, context)
        except ToolError as error:
            if connection.lost.is_set():
                context.report(McpDisconnected(name, connection.reason or str(error)))
            raise
        self._pool.note_success(target)
        return result

    async def _call(self, connection: "ServerConnection", arguments: Any, context: ToolContext) -> Observation:
        """Call the tool within the server's timeout, which does not run while the user is asked."""
        seconds = self._server.settings.timeout
        try:
            async with asyncio.timeout(seconds) as limit:

                async def ask(question: str, options: tuple[str, ...]) -> str | None:
                    limit.reschedule(None)
                    try:
                        return await context.ask(question, options)
                    finally:
                        limit.reschedule(asyncio.get_running_loop().time() + seconds)

                return await connection.call(self._raw_name, arguments, msgspec.structs.replace(context, ask=ask))
        except TimeoutError:
            raise ToolTimeout(
                f"the MCP server `{self._server.name}` did not answer within {seconds:g} s, and the call was "
                f"cancelled. {OUTCOME_UNKNOWN}"
            ) from None

    def _check_pin(self, current: str | None) -> None:
        self._hash = self._hash or hash_tool(self._raw)
        if current == self._hash:
            return
        what = "no longer has this tool" if current is None else "has changed this tool since it was approved"
        server = self._server
        advice = ApprovalAdvice(server.name, server.agent, server.approver)
        raise ToolError(f"the MCP server `{server.name}` {what}. Go on without it, and {advice.tell_model()}.")


def make_spec(server: ApprovedServer, raw: Mapping[str, Any]) -> ToolSpec:
    """Return the declaration of a server's tool. Text that a model cannot see as it is shown is made visible."""
    name, settings = str(raw["name"]), server.settings
    schema: Any = raw.get("inputSchema")
    hints: Any = raw.get("annotations") if settings.trusted else None
    annotations = cast("dict[str, Any]", hints) if isinstance(hints, dict) else {}
    description = make_inert(str(raw.get("description") or raw.get("title") or ""))
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"
    return ToolSpec(
        name=make_tool_name(server.name, name),
        description=description,
        schema=make_inert_schema(schema),
        effect=_find_effect(name, settings, annotations),
        repeatable=_matches(name, settings.repeatable) or annotations.get("idempotentHint") is True,
        timeout=settings.start_timeout + settings.timeout + SPARE_SECONDS,
        searchable=True,
        needs=("network", "workspace") if settings.is_remote else ("workspace",),
    )


def _find_effect(name: str, settings: McpServerSettings, annotations: Mapping[str, Any]) -> Effect:
    for glob, effect in settings.effects.items():
        if fnmatchcase(name, glob):
            return effect
    return "read" if annotations.get("readOnlyHint") is True else "external"


def _is_usable(schema: dict[str, Any]) -> bool:
    """Return whether arguments can be checked against a schema here. The server checks them in any case."""
    try:
        check_schema(schema)
    except ValueError:
        return False
    return True


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _collect_texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in cast("list[Any]", value) for text in _collect_texts(item)]
        case dict():
            entries = cast("dict[str, Any]", value).items()
            return [text for entry in entries for item in entry for text in _collect_texts(item)]
        case _:
            return []
