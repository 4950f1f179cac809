"""Routes that set and delete the session cookie of the dashboard."""

from starlette.responses import Response

from treadle.operations.dashboard import (
    IDENTITY,
    SIGN_IN,
    SIGN_OUT,
    BrowserSignIn,
    SignedInAs,
    make_identity,
)
from treadle.operations.operation import NoParameters
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.auth import get_state
from treadle.surfaces.http.cookies import make_cookie
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services
from treadle.surfaces.http.routing import make_json_response, serve


@serve(SIGN_IN)
async def sign_in(data: BrowserSignIn, request: ApiRequest) -> Response:
    """Serve `dashboard.sign_in`."""
    services, limit = get_services(request), request.services.sign_in_limit
    peer = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-for", "")
    limit.check(peer, forwarded)
    if data.code is not None:
        made = await services.sign_ins.begin_with_code(data.code)
    else:
        made = await services.sign_ins.begin_with_token((data.token or "").strip())
    if made is None:
        limit.count_failure(peer, forwarded)
        raise Refusal(
            403,
            "SignInFailed",
            "The sign-in link was used already or has expired. Make another with: treadle open"
            if data.code is not None
            else "The token is not valid: it is unknown, expired or revoked. Use another, or run: treadle open",
        )
    identity = make_identity(services.for_caller(made.principal, None))
    cookie = make_cookie(request.scope, made.cookie, _is_https(request))
    return make_json_response(identity, headers={"Set-Cookie": cookie})


@serve(IDENTITY)
async def show_identity(_: NoParameters, request: ApiRequest) -> Response:
    """Serve `dashboard.identity`."""
    known = "principal" in get_state(request.scope)
    found = SignedInAs(make_identity(get_context(request)) if known else None)
    return make_json_response(found)


@serve(SIGN_OUT)
async def sign_out(_: NoParameters, request: ApiRequest) -> Response:
    """Serve `dashboard.sign_out`."""
    if cookie := get_state(request.scope).get("cookie"):
        await get_services(request).sign_ins.end(cookie)
    header = make_cookie(request.scope, "", _is_https(request))
    return Response(status_code=204, headers={"Set-Cookie": header, "Clear-Site-Data": '"cache", "storage"'})


def _is_https(request: ApiRequest) -> bool:
    """Return whether the browser uses TLS. Its Origin says so, also behind a proxy."""
    return request.headers.get("origin", "").startswith("https://")


ROUTES = [show_identity, sign_in, sign_out]
