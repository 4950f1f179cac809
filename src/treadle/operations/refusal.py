"""Refusals: requests that a caller may not make, with the HTTP status and the problem that say why."""

from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.domain.modes import describe_mode, is_wider

if TYPE_CHECKING:
    from treadle.domain.access import Principal
    from treadle.domain.agents import AgentSpec
    from treadle.domain.modes import ApprovalMode
    from treadle.domain.workspaces import Workspace


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error, as problem details (RFC 9457) describe it."""

    type: str
    title: str
    status: int
    detail: str = ""
    resets_at: float | None = None
    """For a quota: when there is room again, in seconds since 1970."""


class Refusal(Exception):
    """A request that is refused before an error of the domain could arise."""

    def __init__(self, status: int, kind: str, detail: str, param: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.param = param
        """The parameter or the place in the body that is wrong, if one is."""


def check_workspace_name(workspace: str | None, principal: "Principal") -> None:
    """Raise a refusal if a workspace is named by a caller that may not see the folders of the machine."""
    if workspace is not None and not principal.may("admin"):
        raise Refusal(403, "Forbidden", "Naming a workspace needs a token with the scope `admin`. Leave it out.")


def show_workspace(workspace: "Workspace", principal: "Principal") -> "Workspace | None":
    """Return a workspace as a caller may see it: None if it is unknown, or if the caller may not see the folders of
    the machine."""
    return workspace if workspace.folder and principal.may("admin") else None


def refuse_wider_mode(mode: "ApprovalMode | None", current: "ApprovalMode | None", principal: "Principal") -> None:
    """Raise a refusal if a caller that may not approve widens the mode of a session."""
    if is_wider(mode, current) and not principal.may("approve"):
        raise Refusal(
            403,
            "ModeNotAllowed",
            f"The mode `{describe_mode(mode)}` lets the agent do more without asking, which requires the scope "
            "`approve`. Keep the mode, or ask a reviewer to change it.",
        )


def refuse_other_model(model: str, agent: "AgentSpec") -> None:
    """Raise a refusal for a model that is not one of the agent's own."""
    tiers = () if agent.routing is None else tuple(tier.model for tier in agent.routing.tiers)
    own = {agent.model, *agent.fallbacks, *tiers}
    if agent.provider is not None:
        own.add(f"{agent.provider}/{agent.model}")
    if model not in own:
        raise Refusal(
            403,
            "ModelNotAllowed",
            f"This token may run agent `{agent.name}` with the agent's own models only. Leave `model` out, or use "
            "a token with the scope `admin`.",
        )
