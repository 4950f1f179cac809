"""Operations for another command of the same user, which attaches to the process that owns the home.

A fork here carries its agent as that command has read it, so only a caller that may do anything may use them.
`run_start` has the operation that starts a run."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from treadle.domain.agents import AgentSpec
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.permissions import ConcernKind
from treadle.operations.context import Context
from treadle.operations.forks import Fork
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.runs import OneRun
from treadle.operations.schemas import Page, Ticket
from treadle.ports.approvals import Grant


class ForkWhole(Struct, frozen=True):
    fork: Fork


class RevokeGrant(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    tool: str
    pattern: str


class CheckRules(Struct, frozen=True, forbid_unknown_fields=True):
    approval_id: ApprovalId
    patterns: tuple[str, ...]
    """The patterns that a reviewer could allow for the agent permanently."""


class RuleEffects(Struct, frozen=True):
    """What rules for some patterns would change."""

    reasons: tuple[str | None, ...]
    """For each pattern, why the call would need an approval all the same; null if the rule would permit it."""
    concern: ConcernKind | None
    """What the tool found on this machine that needs a reviewer."""


class ServerAddress(Struct, frozen=True):
    """Where the process that owns the home serves HTTP."""

    url: str | None
    """None: it does not."""


class SettingsInUse(Struct, frozen=True):
    """The settings that the process that owns the home uses."""

    settings: dict[str, Any]
    """The content of `config.yaml` without secrets, as plain values."""


FORK = Operation(
    "local.fork",
    "POST",
    "/v1/forks",
    scope="admin",
    request=ForkWhole,
    response=Ticket,
    status=202,
    public=False,
    whole_body="fork",
)
AGENT = Operation(
    "local.agent", "GET", "/v1/runs/{run_id}/agent", scope="admin", request=OneRun, response=AgentSpec, public=False
)
CHECK_RULES = Operation(
    "local.check_rules",
    "POST",
    "/v1/approvals/{approval_id}/rules",
    scope="admin",
    request=CheckRules,
    response=RuleEffects,
    public=False,
)
HAND_OVER = Operation(
    "local.hand_over",
    "POST",
    "/v1/attached/handover",
    scope="admin",
    request=NoParameters,
    response=type(None),
    status=202,
    public=False,
)
ADDRESS = Operation(
    "local.address",
    "GET",
    "/v1/attached/address",
    scope="admin",
    request=NoParameters,
    response=ServerAddress,
    public=False,
)

SETTINGS = Operation(
    "local.settings",
    "GET",
    "/v1/attached/settings",
    scope="admin",
    request=NoParameters,
    response=SettingsInUse,
    public=False,
)


@FORK.handler
async def fork(context: Context, request: ForkWhole) -> Ticket:
    """Fork a run with the agent that continues it."""
    return await context.service.fork(replace(request.fork, key=request.fork.key or context.key))


GRANTS = Operation(
    "local.grants",
    "GET",
    "/v1/runs/{run_id}/grants",
    scope="admin",
    request=OneRun,
    response=Page[Grant],
    public=False,
)
REVOKE_GRANT = Operation(
    "local.revoke_grant",
    "POST",
    "/v1/runs/{run_id}/grants/revoke",
    scope="admin",
    request=RevokeGrant,
    response=type(None),
    public=False,
)


@AGENT.handler
async def agent_of(context: Context, request: OneRun) -> AgentSpec:
    """Get the agent of a run, as it was when the run was submitted."""
    record = await context.visible_run(request.run_id)
    return await context.service.agent_of(RunId(record.origin.run_id))


@GRANTS.handler
async def list_grants(context: Context, request: OneRun) -> Page[Grant]:
    """List what was approved for the session of a run, in its workspace."""
    record = await context.visible_run(request.run_id)
    return Page(tuple(await context.service.approval_service.list_grants(record.origin.run_id)))


@REVOKE_GRANT.handler
async def revoke_grant(context: Context, request: RevokeGrant) -> None:
    """Remove what was approved for the session of a run, in its workspace.

    Such calls are asked about again from the next one on."""
    record = await context.visible_run(request.run_id)
    grant = Grant(request.tool, request.pattern)
    await context.service.approval_service.revoke_grant(record.origin.run_id, grant)


@CHECK_RULES.handler
async def check_rules(context: Context, request: CheckRules) -> RuleEffects:
    """Find which rules would permit a call that waits for an approval. Nothing is changed."""
    record, service = await context.visible_approval(request.approval_id), context.service.approval_service
    reasons = [await service.explain_rule(record.approval_id, pattern) for pattern in request.patterns]
    return RuleEffects(tuple(reasons), await service.find_concern(record.approval_id))


@HAND_OVER.handler
async def hand_over(context: Context, request: NoParameters) -> None:
    """Ask this process to release the home. It does when its runs have reached a safe point."""
    context.hand_over()


@ADDRESS.handler
async def show_address(context: Context, request: NoParameters) -> ServerAddress:
    """Get where this process serves HTTP."""
    return ServerAddress(context.address())


@SETTINGS.handler
async def show_settings(context: Context, request: NoParameters) -> SettingsInUse:
    """Get the settings that this process uses, which an invalid config.yaml does not change."""
    return SettingsInUse(context.settings())
