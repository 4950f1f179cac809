"""The home of a command that can attach to the process that owns it.

That process keeps its settings while config.yaml is invalid. A command that is attached to it uses them too, and
warns."""

import socket
from typing import TYPE_CHECKING

import msgspec

from treadle.bootstrap.databases import find_owner
from treadle.config.home import Home
from treadle.config.home_config import HomeConfig
from treadle.config.yaml_files import to_struct
from treadle.domain.errors import ConfigError
from treadle.remote.owner_watch import NOTICE_SECONDS, OwnerName
from treadle.surfaces.terminal.output import alert

if TYPE_CHECKING:
    from treadle.operations.local_admin import SettingsInUse


class OwnerSettings:
    """The settings of the process that owns a home. They are requested once, when config.yaml is invalid."""

    def __init__(self) -> None:
        self.fault: ConfigError | None = None
        """Why config.yaml is not used; None: it is used."""
        self._config: HomeConfig | None = None

    def replace_invalid(self, home: Home, fault: ConfigError) -> HomeConfig:
        """Return the settings of the owner, and warn. Raise `fault` if no other process owns the home."""
        if self._config is None:
            self._config = _request_settings(home)
            if self._config is None:
                raise fault
            alert(f"config.yaml is invalid; the running owner still uses the previous settings: {fault}")
        self.fault = fault
        return self._config


class AttachableHome(Home, frozen=True):
    """A home whose settings are those of its owner while config.yaml is invalid."""

    owner: OwnerSettings = msgspec.field(default_factory=OwnerSettings)

    def config(self) -> HomeConfig:
        try:
            found = super().config()
        except ConfigError as fault:
            return self.owner.replace_invalid(self, fault)
        if self.live is None:
            self.owner.fault = None  # the file has been corrected
        return found


def find_fault(home: Home) -> ConfigError | None:
    """Return why this process may not own the home: it uses the settings of another owner. None: it may."""
    return home.owner.fault if isinstance(home, AttachableHome) else None


def _request_settings(home: Home) -> HomeConfig | None:
    """Return the settings that the owner of a home uses; None if no other process answers as its owner."""
    owned = find_owner(home)
    if owned is None or owned.socket is None:
        return None
    try:
        answer = _ask(owned.socket)
    except TimeoutError:
        alert(OwnerName(owned.pid, owned.owner).explain_silence(NOTICE_SECONDS))
        return None
    try:
        return None if answer is None else to_struct(answer.settings, HomeConfig, "the settings of the owner")
    except ConfigError:  # it is another version
        return None


def _ask(path: str) -> "SettingsInUse | None":
    """Return what a process answers on its Unix socket. Raise TimeoutError if it is silent. Settings are read
    outside the event loop too, so this does not use it."""
    from http.client import HTTPConnection, HTTPException

    from treadle.operations.local_admin import SETTINGS, SettingsInUse

    connection = HTTPConnection("localhost")
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(NOTICE_SECONDS)
        connection.sock.connect(path)
        connection.request(SETTINGS.method, SETTINGS.path)
        response = connection.getresponse()
        return msgspec.json.decode(response.read(), type=SettingsInUse) if response.status == 200 else None
    except TimeoutError:
        raise
    except (OSError, HTTPException, msgspec.DecodeError):  # it has ended, or is another version
        return None
    finally:
        connection.close()
