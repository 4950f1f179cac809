"""What the session is made of, as Markdown: what fills the context window, MCP servers and permissions."""

from collections.abc import Sequence

from treadle.domain.agents import AgentSpec
from treadle.domain.permissions import ApprovalRule
from treadle.operations.context_use import ContextUse
from treadle.operations.mcp_status import McpServerView
from treadle.ports.approvals import Grant
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.item_view import format_count

BAR_WIDTH = 20


def describe_context(found: ContextUse) -> str:
    """Return what fills the context window, the largest part first."""
    head = texts.CONTEXT_HEAD.format(
        tokens=format_count(found.tokens), window=format_count(found.window), model=one_line(found.model)
    )
    counted = [(texts.CONTEXT_KINDS[part.kind], part.tokens) for part in found.parts]
    counted.append((texts.CONTEXT_FREE, max(0, found.window - found.tokens)))
    rows = [
        f"| {name} | {format_count(tokens)} | {_show_share(tokens, found.window)} |" for name, tokens in counted
    ]
    return f"## {texts.CONTEXT_TITLE}\n\n{head}\n\n| | tokens | share |\n|---|---|---|\n" + "\n".join(rows)


def _show_share(tokens: int, window: int) -> str:
    share = tokens / max(1, window)
    return f"{share:.0%} {'█' * round(share * BAR_WIDTH)}"


def describe_servers(servers: Sequence[McpServerView]) -> str:
    """Return the configured MCP servers with their state and their tools."""
    if not servers:
        return texts.NO_MCP_SERVERS
    rows: list[str] = []
    for server in servers:
        states = ", ".join(dict.fromkeys(str(each.state) for each in server.connections))
        cells = (server.name, server.state, str(len(server.tools)), states, server.target)
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    head = "| server | approval | tools | connection | target |\n|---|---|---|---|---|\n"
    return f"## {texts.MCP_TITLE}\n\n{head}" + "\n".join(rows)


def describe_permissions(
    agent: AgentSpec, allowed: Sequence[ApprovalRule], allowed_file: str, grants: Sequence[Grant]
) -> str:
    """Return what an agent may do without an approval: the rules of its file, and what was allowed permanently and
    for the session."""
    own = [rule for rule in agent.approvals.rules if rule not in allowed]
    default = texts.PERMISSIONS_DEFAULT.format(
        default=agent.approvals.default, meaning=texts.PERMISSIONS_MEANING[agent.approvals.default]
    )
    parts = [f"## {texts.PERMISSIONS_TITLE}", _list_rules(own), default]
    if grants:
        parts += [texts.PERMISSIONS_SESSION, _list_grants(grants)]
    if allowed:
        listed = _list_rules(allowed, range(len(grants) + 1, len(grants) + len(allowed) + 1))
        parts += [texts.PERMISSIONS_ALLOWED.format(path=allowed_file), listed]
    if grants or allowed:
        parts.append(texts.PERMISSIONS_HINT)
    return "\n\n".join(part for part in parts if part)


def _list_rules(rules: Sequence[ApprovalRule], numbers: Sequence[int] = ()) -> str:
    """Return the rules as a table, with the numbers of those that can be removed here."""
    if not rules:
        return ""
    rows: list[str] = []
    for at, rule in enumerate(rules):
        number = str(numbers[at]) if numbers else ""
        cells = (rule.tool, rule.match or "*", rule.do, rule.workspace or "")
        rows.append(f"| {number} | " + " | ".join(map(_cell, cells)) + " |")
    return "| | tool | what | decision | workspace |\n|---|---|---|---|---|\n" + "\n".join(rows)


def _list_grants(grants: Sequence[Grant]) -> str:
    rows = [
        f"| {number} | {_cell(grant.tool)} | {_cell(grant.pattern)} |" for number, grant in enumerate(grants, 1)
    ]
    return "| | tool | what |\n|---|---|---|\n" + "\n".join(rows)


def _cell(text: str) -> str:
    return one_line(text).replace("|", "/").replace("`", "'") or "-"
