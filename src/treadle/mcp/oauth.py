"""OAuth for remote MCP servers: authorization code with PKCE, registration or a client metadata document, refresh.

Tokens and registrations are kept in the vault, one secret per server. This module imports the SDK. Import it only
where a server is used."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import calculate_token_expiry
from pydantic import AnyUrl

from treadle.domain.mcp_servers import OAuthSettings
from treadle.domain.secret_refs import find_secret_names

LOGIN_SECONDS = 300.0
"""How long `treadle mcp login` waits for the browser."""
PAGE = "<!doctype html><title>Treadle</title><p>You are signed in. You can close this page."
REFUSED = "<!doctype html><title>Treadle</title><p>This sign-in was refused. Start it again."
_OTHER = re.compile(r"[^A-Z0-9]+")


def make_secret_name(server: str, agent: str) -> str:
    """Return the name of the secret with the sign-in of a server."""
    digest = sha256(f"{agent}/{server}".encode()).hexdigest()[:6].upper()
    return f"MCP_LOGIN_{_OTHER.sub('_', server.upper())[:40]}_{digest}"


class LoginStore(Protocol):
    """Where sign-ins are kept."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, value: str) -> None: ...


class VaultStorage:
    """Implements the SDK's `TokenStorage` with secrets of the vault. The tokens are secrets of their own, so that
    they are redacted wherever they appear."""

    def __init__(self, secrets: LoginStore, name: str, url: str, settings: OAuthSettings) -> None:
        self._secrets = secrets
        self._name = name
        self._url = url
        self._settings = settings

    @property
    def is_signed_in(self) -> bool:
        return "token" in self._load()

    async def get_tokens(self) -> OAuthToken | None:
        stored, access = self._load().get("token"), self._secrets.read(f"{self._name}_ACCESS")
        if stored is None or access is None:
            return None
        refresh = self._secrets.read(f"{self._name}_REFRESH") if stored.get("refreshable") else None
        fields = {key: value for key, value in stored.items() if key != "refreshable"}
        return OAuthToken(access_token=access, refresh_token=refresh, **fields)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._secrets.write(f"{self._name}_ACCESS", tokens.access_token)
        if tokens.refresh_token is not None:
            self._secrets.write(f"{self._name}_REFRESH", tokens.refresh_token)
        hidden = {"access_token", "refresh_token"}
        stored = tokens.model_dump(mode="json", exclude_none=True, exclude=hidden)
        stored["refreshable"] = tokens.refresh_token is not None
        self._store(token=stored, expires_at=calculate_token_expiry(tokens.expires_in))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        settings, stored = self._settings, self._load().get("client")
        if settings.client_id is not None:
            method = "client_secret_post" if settings.client_secret else "none"
            return OAuthClientInformationFull(
                client_id=settings.client_id,
                client_secret=self._resolve(settings.client_secret),
                token_endpoint_auth_method=method,
            )
        return None if stored is None else OAuthClientInformationFull.model_validate(stored)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._store(client=client_info.model_dump(mode="json", exclude_none=True))

    def restore_context(self, context: OAuthContext) -> None:
        """Give a new session what an earlier one found out about the authorization server."""
        stored = self._load()
        context.token_expiry_time = stored.get("expires_at")
        if (metadata := stored.get("metadata")) is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        if (resource := stored.get("resource")) is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)
        context.auth_server_url = stored.get("issuer")

    def store_context(self, context: OAuthContext) -> None:
        """Store what a session found out about the authorization server."""
        metadata, resource = context.oauth_metadata, context.protected_resource_metadata
        self._store(
            metadata=None if metadata is None else metadata.model_dump(mode="json", exclude_none=True),
            resource=None if resource is None else resource.model_dump(mode="json", exclude_none=True),
            issuer=context.auth_server_url,
        )

    def _resolve(self, reference: str | None) -> str | None:
        if reference is None:
            return None
        names = find_secret_names(reference)
        return self._secrets.read(names[0]) if names else reference

    def _load(self) -> dict[str, Any]:
        """Return what is stored for this address. A sign-in to another address does not count."""
        try:
            found: Any = json.loads(self._secrets.read(self._name) or "{}")
        except ValueError:
            return {}
        stored = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return stored if stored.get("url") == self._url else {}

    def _store(self, **values: Any) -> None:
        self._secrets.write(self._name, json.dumps({**self._load(), "url": self._url, **values}))


class Login(OAuthClientProvider):
    """Signs in to a server with the help of a browser, or refreshes the tokens of an earlier sign-in."""

    def __init__(
        self,
        url: str,
        settings: OAuthSettings,
        storage: VaultStorage,
        redirect_uri: str = "http://127.0.0.1/callback",
        show: Callable[[str], Awaitable[None]] | None = None,
        wait: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
    ) -> None:
        scopes = " ".join(settings.scopes) or None
        uris = [AnyUrl(redirect_uri)]
        metadata = OAuthClientMetadata(client_name="Treadle", redirect_uris=uris, scope=scopes)
        super().__init__(url, metadata, storage, show, wait, settings.client_metadata_url)
        self._url = url
        self._settings = settings
        self._storage = storage

    async def _perform_authorization(self) -> httpx2.Request:
        self._choose_client_authentication()
        return await super()._perform_authorization()

    async def _refresh_token(self) -> httpx2.Request:
        self._choose_client_authentication()
        return await super()._refresh_token()

    def _choose_client_authentication(self) -> None:
        """Authenticate a client that was registered before in the way that the server supports; HTTP Basic is the
        standard's default."""
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if self._settings.client_id is None or client is None or client.client_secret is None:
            return
        supported = None if metadata is None else metadata.token_endpoint_auth_methods_supported
        uses_post = bool(supported) and "client_secret_basic" not in supported
        client.token_endpoint_auth_method = "client_secret_post" if uses_post else "client_secret_basic"

    async def _initialize(self) -> None:
        await super()._initialize()
        self._storage.restore_context(self.context)

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the SDK's flow. Requests that a server could use to reach into this network are refused, and without
        a browser a rejected token ends the flow."""
        flow = super()._auth_flow(request)
        response: httpx2.Response | None = None
        try:
            while True:
                wanted = await (anext(flow) if response is None else flow.asend(response))
                if wanted is not request:
                    self._check_address(str(wanted.url))
                response = yield wanted
                if response.status_code == 401 and wanted is request and self.context.redirect_handler is None:
                    raise OAuthFlowError("the sign-in has expired or was revoked")
        except StopAsyncIteration:
            self._storage.store_context(self.context)
        finally:
            await flow.aclose()

    def _check_address(self, url: str) -> None:
        parts, own = urlsplit(url), urlsplit(self._url)
        if parts.scheme == "https" and not is_private_host(parts.hostname or ""):
            return
        if is_private_host(own.hostname or "") and parts.scheme in ("http", "https"):
            return  # a server of this machine or network may name others of it
        raise OAuthFlowError(f"the server names an address that is not acceptable for a sign-in: {url[:200]}")


class NoLogin(httpx2.Auth):
    """Says clearly that a server wants a sign-in."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code == 401:
            raise OAuthFlowError("it wants a sign-in (401 Unauthorized)")


def is_private_host(host: str) -> bool:
    """Return whether a host is an address of this machine or of a private network."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False


class CallbackListener:
    """A local address to which the browser returns after a sign-in. It accepts one answer with the right state."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._state: str | None = None
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def redirect_uri(self) -> str:
        return f"http://127.0.0.1:{self.port}/callback"

    def expect(self, url: str) -> None:
        """Accept only the answer to the sign-in that begins at this address."""
        self._state = parse_qs(urlsplit(url).query).get("state", [None])[-1]

    async def wait(self) -> AuthorizationCodeResult:
        async with asyncio.timeout(LOGIN_SECONDS):
            return await self._answer

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10.0):
                head = await reader.readuntil(b"\r\n\r\n")
            status, page = self._receive(head.split(b" ")[1].decode("latin-1"))
            body = page.encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()

    def _receive(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.path != "/callback" or self._answer.done():
            return "404 Not Found", REFUSED
        if self._state is None or query.get("state") != self._state:
            return "400 Bad Request", REFUSED
        if "error" in query:
            reason = query.get("error_description") or query["error"]
            self._answer.set_exception(PermissionError(reason[:300]))
            return "400 Bad Request", REFUSED
        if "code" not in query:
            return "400 Bad Request", REFUSED
        result = AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))
        self._answer.set_result(result)
        return "200 OK", PAGE
