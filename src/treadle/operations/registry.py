"""All operations, by entity. The module of an entity is imported on first use."""

from importlib import import_module
from typing import Any, cast

from treadle.operations.operation import Operation

ENTITIES: dict[str, tuple[str, ...]] = {
    "agents": ("agents", "agent_versions"),
    "runs": (
        "runs",
        "run_start",
        "run_control",
        "client_calls",
        "run_inspection",
        "file_changes",
        "context_use",
        "replays",
        "event_lines",
        "transcripts",
    ),
    "feedback": ("feedback",),
    "evaluations": ("evaluations", "suites"),
    "overview": ("overview",),
    "events": ("event_streams",),
    "tickets": ("stream_tickets",),
    "approvals": ("approvals",),
    "questions": ("questions",),
    "sessions": ("sessions", "transcripts"),
    "search": ("search",),
    "memory": ("memories",),
    "skills": ("skills",),
    "vault": ("vault",),
    "tokens": ("tokens",),
    "usage": ("usage_report",),
    "schedules": ("schedules",),
    "hooks": ("inbound_webhooks",),
    "webhooks": ("webhooks",),
    "system": ("system",),
    "mcp": ("mcp_servers",),
    "channels": ("channels",),
    "dashboard": ("dashboard",),
    "local": ("run_start", "local_admin", "user_commands", "mcp_prompts", "evaluations", "case_folders"),
}
"""The modules of each entity, in `treadle.operations`."""


def list_operations(entity: str) -> tuple[Operation[Any, Any], ...]:
    """Return the operations of one entity, in the order of their definitions."""
    found: list[Operation[Any, Any]] = []
    for name in ENTITIES[entity]:
        for value in vars(import_module(f"treadle.operations.{name}")).values():
            if isinstance(value, Operation):
                operation = cast("Operation[Any, Any]", value)
                found += [operation] if operation.entity == entity else []
    return tuple(found)


def all_operations() -> tuple[Operation[Any, Any], ...]:
    return tuple(operation for entity in ENTITIES for operation in list_operations(entity))
