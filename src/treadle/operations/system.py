"""The system: version, self-check, workers, guards and models."""

from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page
from treadle.operations.system_facts import BackupView, DoctorFinding, ModelView, SystemInfo, WorkerView


class GuardView(Struct, frozen=True):
    """A guard, and its settings for an agent."""

    guard: str
    purpose: str
    settings: dict[str, Any]
    enabled: bool = True


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class RunDoctor(Struct, frozen=True, forbid_unknown_fields=True):
    offline: Annotated[bool, Meta(description="Open no connections.")] = False


class ListGuards(Struct, frozen=True, forbid_unknown_fields=True):
    agent: str = "default"


class ListModels(Struct, frozen=True, forbid_unknown_fields=True):
    probe: Annotated[bool, Meta(description="Also ask the providers for the models that they offer.")] = False


class OneBackup(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

BACKUPS = Operation(
    "system.backups", "GET", "/v1/backups", scope="admin", request=NoParameters, response=Page[BackupView]
)
BACK_UP = Operation(
    "system.back_up", "POST", "/v1/backups", scope="admin", request=NoParameters, response=BackupView, status=201
)
REMOVE_BACKUP = Operation(
    "system.remove_backup",
    "DELETE",
    "/v1/backups/{name}",
    scope="admin",
    request=OneBackup,
    response=type(None),
    errors=(404,),
)
INFO = Operation("system.info", "GET", "/v1/system", scope="read", request=NoParameters, response=SystemInfo)
DOCTOR = Operation(
    "system.doctor", "GET", "/v1/system/doctor", scope="admin", request=RunDoctor, response=Page[DoctorFinding]
)
WORKERS = Operation(
    "system.workers", "GET", "/v1/system/workers", scope="admin", request=NoParameters, response=Page[WorkerView]
)
GUARDS = Operation(
    "system.guards",
    "GET",
    "/v1/system/guards",
    scope="read",
    request=ListGuards,
    response=Page[GuardView],
    errors=(404,),
)
MODELS = Operation(
    "system.models", "GET", "/v1/system/models", scope="read", request=ListModels, response=Page[ModelView]
)


@INFO.handler
async def show_info(context: Context, request: NoParameters) -> SystemInfo:
    """Get the version of the server and its store.

    Only an administrator sees the home and the processes."""
    info = context.system.info()
    if not context.principal.may("admin"):
        return replace(info, home="", process_id=0)
    return replace(info, processes=tuple(context.list_processes()))


@DOCTOR.handler
async def run_doctor(context: Context, request: RunDoctor) -> Page[DoctorFinding]:
    """Check the home, the store and the providers.

    Nothing is changed or charged. Each finding says whether it was probed just now."""
    return Page(tuple(await context.system.examine(offline=request.offline)))


@WORKERS.handler
async def list_workers(context: Context, request: NoParameters) -> Page[WorkerView]:
    """List the workers that own runs or wait for some.

    With their version and load. On SQLite, the process that owns the home is the only worker."""
    return Page(tuple(await context.system.workers()))


@GUARDS.handler
async def list_guards(context: Context, request: ListGuards) -> Page[GuardView]:
    """List the guards with their settings for an agent."""
    return Page(describe_guards(context.visible_agent(request.agent)))


@MODELS.handler
async def list_models(context: Context, request: ListModels) -> Page[ModelView]:
    """List aliases and models with their context windows and prices.

    Without `probe`, no provider is asked."""
    return Page(tuple(await context.system.models(probe=request.probe)))


@BACKUPS.handler
async def list_backups(context: Context, request: NoParameters) -> Page[BackupView]:
    """List the backups that were made over the API.

    The newest first. They are in the folder `backups` of the home."""
    return Page(tuple(await context.system.backups.list()))


@BACK_UP.handler
async def back_up(context: Context, request: NoParameters) -> BackupView:
    """Back up the home to a file in its folder `backups`, and verify it.

    Everything else continues. The vault in it is encrypted, and its key is not part of the backup."""
    return await context.system.backups.make(context.now())


@REMOVE_BACKUP.handler
async def remove_backup(context: Context, request: OneBackup) -> None:
    """Remove a backup."""
    await context.system.backups.remove(request.name)


def describe_guards(agent: AgentSpec) -> tuple[GuardView, ...]:
    """Return every guard with the settings that an agent has for it."""
    return (
        *_describe_limit_guards(agent),
        *_describe_progress_guards(agent),
        *_describe_reply_guards(agent),
        *_describe_size_guards(agent),
        GuardView("quarantine", "Ends a run whose workers died several times without progress.", {}),
    )


def _describe_limit_guards(agent: AgentSpec) -> tuple[GuardView, ...]:
    """Return the guards that end a run at a limit of time or money."""
    limits, quotas = agent.limits, to_builtins(agent.quotas)
    return (
        GuardView("steps", "Ends a run after its maximum number of steps.", {"limits.max_steps": limits.max_steps}),
        GuardView(
            "deadline",
            "Ends a run at its deadline.",
            {"limits.deadline": limits.deadline},
            limits.deadline is not None,
        ),
        GuardView(
            "cost",
            "Reserves the cost of a call before it, and ends a run that cannot pay.",
            {"limits.cost": limits.cost},
            limits.cost is not None,
        ),
        GuardView(
            "quota",
            "Holds or ends runs of an agent or a token that has used up its quota.",
            {f"quotas.{name}": value for name, value in quotas.items()},
            bool(quotas),
        ),
    )


def _describe_progress_guards(agent: AgentSpec) -> tuple[GuardView, ...]:
    """Return the guards that watch whether a run makes progress."""
    return (
        GuardView(
            "loop",
            "Warns about, refuses and stops the same call, the same result and cycles of calls.",
            {"loop.doom_loop": agent.loop.doom_loop},
        ),
        GuardView(
            "stuck",
            "Recovers or ends a run whose tools always fail or whose steps bring nothing new.",
            {"limits.stuck_steps": agent.limits.stuck_steps},
            agent.limits.stuck_steps > 0,
        ),
    )


def _describe_reply_guards(agent: AgentSpec) -> tuple[GuardView, ...]:
    """Return the guards that check the replies of the model."""
    return (
        GuardView("phantom action", "Asks back when an answer claims an action that no call has done.", {}),
        GuardView("call written as text", "Asks back when a reply writes a tool call as text.", {}),
        GuardView("refused", "Ends a run whose reply the model refused or a filter cut.", {}),
        GuardView("empty turn", "Asks back once after a reply without text and calls.", {}),
        GuardView(
            "continuation",
            "Continues a reply that was cut at the model's token limit.",
            {"limits.max_continuations": agent.limits.max_continuations},
        ),
        GuardView(
            "output schema",
            "Rejects answers that do not match the output schema.",
            {"output": agent.output},
            agent.output is not None,
        ),
    )


def _describe_size_guards(agent: AgentSpec) -> tuple[GuardView, ...]:
    """Return the guards that limit the calls, the child runs and the context."""
    limits = agent.limits
    return (
        GuardView("calls", "Limits the tool calls of one reply.", {"limits.max_calls": limits.max_calls}),
        GuardView(
            "sub-agents",
            "Limits the depth and the number of child runs.",
            {
                "limits.max_depth": limits.max_depth,
                "limits.max_children": limits.max_children,
                "limits.max_tree": limits.max_tree,
            },
        ),
        GuardView(
            "context",
            "Compacts the conversation before it exceeds the window.",
            {"compaction.at": agent.compaction.at},
        ),
    )
