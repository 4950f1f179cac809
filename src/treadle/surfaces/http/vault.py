"""Secrets: kept, granted, removed. A value is never read back."""

import os
from contextlib import closing
from datetime import datetime
from typing import Annotated

from litestar import Router, delete, get, put
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from treadle.operations.schemas import Page, moment
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks
from treadle.vault.names import refuse_wrong_name
from treadle.vault.store import EVERY, Secret, SecretGrant, VaultStore


class GrantBody(Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[str, Meta(min_length=1, max_length=200)]
    tool: Annotated[str, Meta(min_length=1, max_length=200)] = EVERY


class NewSecret(Struct, frozen=True, forbid_unknown_fields=True):
    value: Annotated[str, Meta(min_length=1, max_length=65_536)]
    grants: Annotated[tuple[GrantBody, ...], Meta(max_length=100)] = ()
    force: bool = False
    """Take a value of fewer than 8 characters."""


class SecretView(Struct, frozen=True):
    name: str
    grants: tuple[GrantBody, ...]
    created: datetime
    changed: datetime


@get(
    "/v1/vault",
    **asks("admin", "List the names of the secrets"),
    sync_to_thread=True,
)
def list_secrets(request: Asked) -> Page[SecretView]:
    with closing(_store(request)) as store:
        return Page(tuple(map(_view, store.inventory())))


@put(
    "/v1/vault/{name:str}",
    **asks("admin", "Store a secret"),
    sync_to_thread=True,
)
def keep(name: FromPath[str], data: JSONBody[NewSecret], request: Asked) -> SecretView:
    """Creates the secret or replaces its value. The value is encrypted and never returned."""
    refuse_wrong_name(name)
    with closing(_store(request)) as store:
        store.put(name, data.value, [SecretGrant(each.agent, each.tool) for each in data.grants], forced=data.force)
        return next(_view(secret) for secret in store.inventory() if secret.name == name)


@delete(
    "/v1/vault/{name:str}",
    **asks("admin", "Delete a secret", 404),
    sync_to_thread=True,
)
def remove(name: FromPath[str], request: Asked) -> None:
    with closing(_store(request)) as store:
        store.remove(name)


def _store(request: Asked) -> VaultStore:
    return VaultStore(served_of(request).home.path, os.environ)


def _view(secret: Secret) -> SecretView:
    grants = tuple(GrantBody(grant.agent, grant.tool) for grant in secret.grants)
    return SecretView(secret.name, grants, moment(secret.created), moment(secret.changed))


ROUTES = Router("/", route_handlers=[list_secrets, keep, remove], tags=["vault"])
