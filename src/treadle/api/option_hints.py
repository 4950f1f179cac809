"""What to write instead of an option that Treadle does not have: its nearest name, or its counterpart."""

from collections.abc import Mapping
from typing import Any

from treadle.domain.suggestions import find_closest

AGENT_HINTS = {
    "system_prompt": "Write instructions=…",
    "system": "Write instructions=…",
    "prompt": "Write instructions=…",
    "description": "Write instructions=…",
    "temperature": 'Write model_settings={"temperature": …}',
    "max_tokens": 'Write model_settings={"max_tokens": …}',
    "top_p": "Sampling parameters are set for a model in config.yaml, under models",
    "api_key": "Write engine.add_provider(NAME, base_url=…, api_key=…), or set the variable of the provider",
    "base_url": "Write engine.add_provider(NAME, base_url=…)",
    "max_steps": 'Write limits={"max_steps": …}',
    "max_turns": 'Write limits={"max_steps": …}',
    "max_iterations": 'Write limits={"max_steps": …}',
    "timeout": 'Write limits={"deadline": …}',
    "output_type": "Write output=…",
    "result_type": "Write output=…",
    "response_format": "Write output=…",
    "deps": "Write Engine(deps=…), or engine.run(agent, message, deps=…): tools find it in ToolContext.deps",
    "handoffs": 'Write tools=["agent_send"], and engine.add_agents(…)',
    "sub_agents": 'Write tools=["agent_spawn"], and engine.add_agents(…)',
    "mcp": "Write mcp_servers={NAME: …}",
    "toolsets": "Write tools=[…]: it takes toolsets too",
    "checkpointer": "Leave it out: every run is durable, in the database of the engine",
}
"""What to write instead of the options of other libraries."""
MCP_SERVER_HINTS = {
    "name": "The name of a server is its key in mcp_servers={NAME: …}",
    "transport": "Write type=…, or leave it out",
    "token": 'Write headers={"Authorization": "Bearer …"}',
    "auth": 'Write headers={"Authorization": "Bearer …"}',
    "allowed_tools": "Write tools=[…]",
    "approved": "Write approve=True",
}
RUN_HINTS = {
    "timeout": "Write deadline=…",
    "user_id": "Write user=…",
    "labels": "Write tags=[…]",
    "thread_id": "Write session=…",
    "session_id": "Write session=…",
    "conversation_id": "Write session=…",
    "message_history": "Write session=…: a session keeps its messages",
    "history": "Write session=…: a session keeps its messages",
    "stream": "Call engine.stream_text(…) or engine.stream(…)",
    "max_steps": 'Write limits={"max_steps": …}',
    "max_turns": 'Write limits={"max_steps": …}',
    "usage_limits": "Write limits={…} or cost=…",
    "idempotency_key": "Write key=…",
    "images": "Write attachments=[…]",
    "files": "Write attachments=[…]",
    "output_type": "Write output=…",
}


def refuse_unknown_options(
    given: Mapping[str, Any], known: type, owner: str = "a run", hints: Mapping[str, str] = RUN_HINTS
) -> None:
    """Raise TypeError for an option that `known` does not declare."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            near = find_closest(name, list(names))
            meant = f" Did you mean `{near}`?" if near else f" Options: {', '.join(names)}."
            if (hint := hints.get(name)) is not None:
                meant = f" {hint}."
            raise TypeError(f"`{name}` is not an option of {owner}.{meant}")
