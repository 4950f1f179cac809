"""The prompts of MCP servers, for a user of this machine: they become messages."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.mcp_servers import McpPrompt, McpPromptMessage
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Page


class PromptsOfAgent(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentSpec


class ListMcpPrompts(Struct, frozen=True):
    of_agent: PromptsOfAgent


class ChosenPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentSpec
    server: str
    name: str
    arguments: Annotated[dict[str, str], Meta(max_length=100)] = {}


class ReadMcpPrompt(Struct, frozen=True):
    chosen: ChosenPrompt


LIST = Operation(
    "local.mcp_prompts",
    "POST",
    "/v1/mcp/prompts",
    scope="admin",
    request=ListMcpPrompts,
    response=Page[McpPrompt],
    public=False,
    whole_body="of_agent",
)
READ = Operation(
    "local.mcp_prompt",
    "POST",
    "/v1/mcp/prompt",
    scope="admin",
    request=ReadMcpPrompt,
    response=McpPromptMessage,
    public=False,
    whole_body="chosen",
)


@LIST.handler
async def list_mcp_prompts(context: Context, request: ListMcpPrompts) -> Page[McpPrompt]:
    """List the prompts of the approved MCP servers of an agent that can be connected."""
    return Page(tuple(await context.mcp.list_prompts(request.of_agent.agent)))


@READ.handler
async def read_mcp_prompt(context: Context, request: ReadMcpPrompt) -> McpPromptMessage:
    """Get a prompt of an MCP server as a message."""
    chosen = request.chosen
    return await context.mcp.read_prompt(chosen.agent, chosen.server, chosen.name, chosen.arguments)
