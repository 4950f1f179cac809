"""Versions of agents: their history, what changed between two of them, restoring one, and labels."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from difflib import unified_diff
from typing import Annotated, Any

from msgspec import Meta, Struct

from treadle.domain.agent_versions import AgentLabel, AgentVersion, VersionOrigin, parse_version
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UnknownAgent, UsageError
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Cursor, Limit, Page, moment


class VersionView(Struct, frozen=True):
    """A version of an agent."""

    agent: str
    number: int
    at: datetime
    author: str
    """The account that owned the file, or who called the operation."""
    origin: VersionOrigin
    restored: int | None = None
    """The earlier version that was restored."""
    deleted: bool = False
    """The agent was deleted."""
    labels: tuple[str, ...] = ()


class VersionDetail(VersionView, frozen=True):
    """A version with its content."""

    text: str = ""
    """The content of the file, without secrets."""
    settings: AgentSpec | None = None
    """The agent that it defines now; null if it cannot be used."""


class VersionDiff(Struct, frozen=True):
    """What changed from one version to another."""

    agent: str
    before: int
    """0: there was none."""
    after: int
    diff: str
    """A unified diff; empty if the contents are the same."""


class ListVersions(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    cursor: Cursor | None = None
    limit: Limit = 50


class OneVersion(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    version: str
    """Its number or a label. `current`: the one that the agent has now."""


class CompareVersions(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    version: str
    since: (
        Annotated[
            str, Meta(min_length=1, max_length=64, description="Compare with this one instead of the one before.")
        ]
        | None
    ) = None


class SetLabel(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    label: str
    version: Annotated[str, Meta(min_length=1, max_length=64, description="Its number, a label, or `current`.")]


class OneLabel(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    label: str


HISTORY = Operation(
    "agents.history",
    "GET",
    "/v1/agents/{name}/versions",
    scope="read",
    request=ListVersions,
    response=Page[VersionView],
    errors=(404,),
)
VERSION = Operation(
    "agents.version",
    "GET",
    "/v1/agents/{name}/versions/{version}",
    scope="read",
    request=OneVersion,
    response=VersionDetail,
    errors=(404, 422),
)
DIFF = Operation(
    "agents.diff",
    "GET",
    "/v1/agents/{name}/versions/{version}/diff",
    scope="read",
    request=CompareVersions,
    response=VersionDiff,
    errors=(404, 422),
)
RESTORE = Operation(
    "agents.restore",
    "POST",
    "/v1/agents/{name}/versions/{version}/restore",
    scope="admin",
    request=OneVersion,
    response=VersionView,
    errors=(404, 409, 422),
)
LABEL = Operation(
    "agents.label",
    "PUT",
    "/v1/agents/{name}/labels/{label}",
    scope="admin",
    request=SetLabel,
    response=VersionView,
    errors=(404, 409, 422),
)
UNLABEL = Operation(
    "agents.unlabel",
    "DELETE",
    "/v1/agents/{name}/labels/{label}",
    scope="admin",
    request=OneLabel,
    response=type(None),
    errors=(404, 422),
)


@HISTORY.handler
async def list_versions(context: Context, request: ListVersions) -> Page[VersionView]:
    """List the versions of an agent, the newest first.

    Every change of its file is a version. A change by hand becomes one when the agent is next
    used, or within a second while a server runs."""
    _refuse_hidden(context, request.name)
    before = None if request.cursor is None else _read_cursor(request.cursor)
    found = await context.versions().history(request.name, before, request.limit + 1)
    labels = await context.versions().store.labels(request.name)
    views = tuple([_view(each, labels) for each in found[: request.limit]])
    return Page(views, str(views[-1].number) if len(found) > request.limit else None)


@VERSION.handler
async def show_version(context: Context, request: OneVersion) -> VersionDetail:
    """Get a version of an agent with its content."""
    _refuse_hidden(context, request.name)
    found = await context.versions().find(request.name, request.version)
    labels = await context.versions().store.labels(request.name)
    usable = not found.is_deletion and not found.removed_secrets
    return VersionDetail(
        **_fields(found, labels), text=found.text, settings=context.versions().parse(found) if usable else None
    )


@DIFF.handler
async def compare_versions(context: Context, request: CompareVersions) -> VersionDiff:
    """Compare a version of an agent with the one before, or with another one."""
    _refuse_hidden(context, request.name)
    after = await context.versions().find(request.name, request.version)
    if request.since is not None:
        before = await context.versions().find(request.name, request.since)
    else:
        before = await context.versions().store.find(request.name, after.number - 1)
    return VersionDiff(
        agent=request.name,
        before=0 if before is None else before.number,
        after=after.number,
        diff=make_diff(before, after),
    )


@RESTORE.handler
async def restore_version(context: Context, request: OneVersion) -> VersionView:
    """Write a version of an agent to its file.

    The next run uses it. It becomes a new version: the history is kept."""
    _refuse_hidden(context, request.name)
    restored = await context.versions().restore(request.name, request.version, context.resolve_signer())
    return _view(restored, await context.versions().store.labels(request.name))


@LABEL.handler
async def set_label(context: Context, request: SetLabel) -> VersionView:
    """Give a version of an agent a label.

    A run names it as `NAME@LABEL`. A label that another version has moves here."""
    _refuse_hidden(context, request.name)
    made = await context.versions().label(request.name, request.label, request.version, context.resolve_signer())
    found = await context.versions().find(request.name, str(made.number))
    return _view(found, await context.versions().store.labels(request.name))


@UNLABEL.handler
async def remove_label(context: Context, request: OneLabel) -> None:
    """Remove a label from an agent."""
    _refuse_hidden(context, request.name)
    await context.versions().remove_label(request.name, request.label)


def make_diff(before: AgentVersion | None, after: AgentVersion) -> str:
    """Return what changed from one version to another as a unified diff."""
    old = "" if before is None else before.text
    number = 0 if before is None else before.number
    lines = unified_diff(
        old.splitlines(), after.text.splitlines(), f"version {number}", f"version {after.number}", lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def _read_cursor(cursor: str) -> int:
    with suppress(ValueError):
        number, _ = parse_version(cursor)
        if number is not None:
            return number
    raise UsageError(f"The cursor `{cursor}` is not that of a page of versions. Leave it out.")


def _refuse_hidden(context: Context, agent: str) -> None:
    if not context.principal.sees(agent):
        raise UnknownAgent(f"No agent is called `{agent}`.")


def _view(version: AgentVersion, labels: Sequence[AgentLabel]) -> VersionView:
    return VersionView(**_fields(version, labels))


def _fields(version: AgentVersion, labels: Sequence[AgentLabel]) -> dict[str, Any]:
    return {
        "agent": version.agent,
        "number": version.number,
        "at": moment(version.at),
        "author": version.author,
        "origin": version.origin,
        "restored": version.restored,
        "deleted": version.is_deletion,
        "labels": tuple([each.label for each in labels if each.number == version.number]),
    }
