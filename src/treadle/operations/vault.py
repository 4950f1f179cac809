"""Secrets: stored, granted to agents and tools, removed. A value is never returned."""

import asyncio
import re
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.limits import SECRET_NAME_PATTERN
from treadle.operations.context import Context, StoredSecret
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page, moment

EVERY_TOOL = "*"
_WEBHOOK_SECRET = re.compile(r"(?:WEB)?HOOK_[0-9A-Za-z]{32}")
"""The names that `automation` gives to the secrets of webhooks."""


class SecretGrantView(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent, and the tool of it that may use the secret."""

    agent: Annotated[str, Meta(min_length=1, max_length=200)]
    tool: Annotated[str, Meta(min_length=1, max_length=200)] = EVERY_TOOL


class SecretView(Struct, frozen=True):
    """A secret without its value."""

    name: str
    grants: tuple[SecretGrantView, ...]
    created: datetime
    changed: datetime
    is_of_webhook: bool = False
    """Webhooks are signed with it. It is created, changed and removed with its webhook."""


class PutSecret(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(extra_json_schema={"pattern": f"^{SECRET_NAME_PATTERN}$"})]
    value: Annotated[str, Meta(min_length=1, max_length=65_536)]
    grants: Annotated[tuple[SecretGrantView, ...], Meta(max_length=100)] = ()
    force: bool = False
    """Accept a value of fewer than 8 characters."""


class RemoveSecret(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


LIST = Operation("vault.list", "GET", "/v1/vault", scope="admin", request=NoParameters, response=Page[SecretView])
PUT = Operation("vault.put", "PUT", "/v1/vault/{name}", scope="admin", request=PutSecret, response=SecretView)
REMOVE = Operation(
    "vault.remove",
    "DELETE",
    "/v1/vault/{name}",
    scope="admin",
    request=RemoveSecret,
    response=type(None),
    errors=(404,),
)


@LIST.handler
async def list_secrets(context: Context, request: NoParameters) -> Page[SecretView]:
    """List the names of the secrets."""
    return Page(tuple(map(secret_view, await asyncio.to_thread(context.secrets.list))))


@PUT.handler
async def put_secret(context: Context, request: PutSecret) -> SecretView:
    """Store a secret, or give it another value.

    The value is encrypted and never shown again."""
    grants, put = [(grant.agent, grant.tool) for grant in request.grants], context.secrets.put
    stored = await asyncio.to_thread(put, request.name, request.value, grants, request.force)
    context.reload_secrets()
    return secret_view(stored)


@REMOVE.handler
async def remove_secret(context: Context, request: RemoveSecret) -> None:
    """Remove a secret."""
    await asyncio.to_thread(context.secrets.remove, request.name)


def secret_view(secret: StoredSecret) -> SecretView:
    grants = tuple(SecretGrantView(grant.agent, grant.tool) for grant in secret.grants)
    return SecretView(
        name=secret.name,
        grants=grants,
        created=moment(secret.created),
        changed=moment(secret.changed),
        is_of_webhook=_WEBHOOK_SECRET.fullmatch(secret.name) is not None,
    )
