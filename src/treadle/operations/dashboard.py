"""The dashboard: signing a browser in and out, and what the caller may do.

Hand-written routes serve the operations that read or set the cookie."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.access import SCOPES, Scope, Visibility
from treadle.domain.users import UserId
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.refusal import Refusal
from treadle.operations.schemas import moment

MAX_SECRET_CHARACTERS = 1_000


class Identity(Struct, frozen=True):
    """Who a caller is, and what it may do."""

    name: str
    scopes: tuple[Scope, ...]
    """An administrator has every scope."""
    agents: tuple[str, ...] | None
    """The agents that it can see; null: all of them."""
    user: UserId
    visibility: Visibility
    is_owner: bool
    """It signed in with a link, as the owner of the home."""


class SignedInAs(Struct, frozen=True):
    """Who the caller is, if it has signed in."""

    identity: Identity | None


class BrowserSignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, or the code of a sign-in link."""

    token: Annotated[str, Meta(max_length=MAX_SECRET_CHARACTERS)] | None = None
    code: Annotated[str, Meta(max_length=MAX_SECRET_CHARACTERS)] | None = None


class SignedOut(Struct, frozen=True):
    """How many browsers were signed out."""

    sign_ins: int


class SignInLink(Struct, frozen=True):
    """A one-time code that signs in as the owner of the home."""

    code: str
    expires_at: datetime
    url: str | None = None
    """The address of the server that made it; null if no server did."""


IDENTITY = Operation(
    "dashboard.identity",
    "GET",
    "/v1/dashboard/identity",
    scope=None,
    request=NoParameters,
    response=SignedInAs,
    hand_written=True,
    summary="Show who the caller is and what it may do",
    description="`identity` is null without a valid token or cookie.",
)
SIGN_IN = Operation(
    "dashboard.sign_in",
    "POST",
    "/v1/dashboard/sign-in",
    scope=None,
    request=BrowserSignIn,
    response=Identity,
    errors=(403, 429),
    hand_written=True,
    summary="Sign a browser in",
    description="Sets a session cookie. Send a token, or the code of a sign-in link. The request must carry the "
    "`Origin` of this server and the header `X-Treadle: dashboard`.",
)
SIGN_OUT = Operation(
    "dashboard.sign_out",
    "DELETE",
    "/v1/dashboard/sign-in",
    scope=None,
    request=NoParameters,
    response=type(None),
    hand_written=True,
    summary="Sign this browser out",
)
SIGN_OUT_EVERYWHERE = Operation(
    "dashboard.sign_out_everywhere",
    "DELETE",
    "/v1/dashboard/sign-ins",
    scope=None,
    request=NoParameters,
    response=SignedOut,
)
LINK = Operation(
    "dashboard.link",
    "POST",
    "/v1/dashboard/links",
    scope="admin",
    request=NoParameters,
    response=SignInLink,
    public=False,
)


@SIGN_OUT_EVERYWHERE.handler
async def sign_out_everywhere(context: Context, request: NoParameters) -> SignedOut:
    """Sign out all browsers that signed in with the caller's token.

    For the owner of the home: all browsers that signed in with a link."""
    return SignedOut(await context.sign_ins.end_all(context.principal))


@LINK.handler
async def make_link(context: Context, request: NoParameters) -> SignInLink:
    """Make a one-time code that signs a browser in as the owner of the home."""
    from treadle.operations.sign_in_service import CODE_SECONDS

    if context.principal.token_id is not None:
        raise Refusal(403, "Forbidden", "Only the owner of the home can make sign-in links. Use `treadle open`.")
    code = await context.sign_ins.make_code()
    return SignInLink(code, moment(context.now() + CODE_SECONDS), context.address())


def make_identity(context: Context) -> Identity:
    """Return the caller as the dashboard shows it."""
    principal = context.principal
    scopes: tuple[Scope, ...] = tuple([scope for scope in SCOPES if principal.may(scope)])
    return Identity(
        name=principal.name,
        scopes=scopes,
        agents=principal.agents,
        user=principal.user,
        visibility=principal.visibility,
        is_owner=principal.token_id is None,
    )
