"""Sign-ins to remote MCP servers, kept in the vault of the home. This module imports the MCP SDK."""

import os
from collections.abc import Awaitable, Callable
from contextlib import closing

import httpx2

from treadle.config.home import Home
from treadle.domain.mcp_servers import OAuthSettings
from treadle.mcp.oauth import CallbackListener, Login, NoLogin, VaultStorage, make_secret_name
from treadle.mcp.server_target import ServerTarget
from treadle.vault.store import VaultStore
from treadle.vault.vault import HomeVault


class LoginSecrets:
    """Implements `mcp.oauth.LoginStore`."""

    def __init__(self, home: Home, vault: HomeVault) -> None:
        self._home = home
        self._vault = vault

    def read(self, name: str) -> str | None:
        return self._vault.value(name)

    def write(self, name: str, value: str) -> None:
        self._home.ensure()
        with closing(VaultStore(self._home.path, os.environ)) as store:
            store.put(name, value, forced=True)


def make_storage(home: Home, vault: HomeVault, target: ServerTarget) -> VaultStorage:
    settings = target.server.oauth or OAuthSettings()
    name = make_secret_name(target.name, target.owner)
    return VaultStorage(LoginSecrets(home, vault), name, target.server.url or "", settings)


def make_stored_login(home: Home, vault: HomeVault, target: ServerTarget) -> httpx2.Auth:
    """Return the sign-in to a server that was made earlier, which refreshes its tokens."""
    storage = make_storage(home, vault, target)
    if not storage.is_signed_in:
        return NoLogin()
    return Login(target.server.url or "", target.server.oauth or OAuthSettings(), storage)


async def start_login(
    home: Home, vault: HomeVault, target: ServerTarget, show: Callable[[str], Awaitable[None]]
) -> tuple[httpx2.Auth, CallbackListener]:
    """Return a sign-in that shows an address to the user and waits for the browser, and its local listener."""
    settings = target.server.oauth or OAuthSettings()
    listener = CallbackListener()
    await listener.start(settings.port)

    async def show_expected(url: str) -> None:
        listener.expect(url)
        await show(url)

    login = Login(
        target.server.url or "",
        settings,
        make_storage(home, vault, target),
        listener.redirect_uri,
        show_expected,
        listener.wait,
    )
    return login, listener
