"""What a provider of models is: where it answers, in which wire format, with which key, and how patiently."""

from ipaddress import ip_address
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import UNSET, Struct, UnsetType

PRIVATE_DOMAINS = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
ApiMode = Literal["anthropic_messages", "chat_completions", "responses"]


class Timeouts(Struct, frozen=True, omit_defaults=True):
    """How long a model call may take, in seconds; None turns a limit off."""

    first_byte: float | None = 120.0
    """From sending the request to the first byte of the reply."""
    between_bytes: float | None = 60.0
    whole_call: float | None = 600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"timeouts.{name} must be above 0, or null to turn it off; found {value}")


class TimeoutSettings(Struct, frozen=True, omit_defaults=True):
    """The limits of an endpoint that the operator sets. The others keep their defaults; null turns a limit off."""

    first_byte: float | UnsetType | None = UNSET
    between_bytes: float | UnsetType | None = UNSET
    whole_call: float | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        self.over(Timeouts())  # raises if one is wrong

    def over(self, defaults: Timeouts) -> Timeouts:
        """Return all limits: those that are set, and the defaults for the others."""
        return Timeouts(
            defaults.first_byte if self.first_byte is UNSET else self.first_byte,
            defaults.between_bytes if self.between_bytes is UNSET else self.between_bytes,
            defaults.whole_call if self.whole_call is UNSET else self.whole_call,
        )


NO_TIMEOUTS = Timeouts(first_byte=None, between_bytes=None, whole_call=None)
"""For the embedded model, whose process is watched itself."""
LOCAL_TIMEOUTS = Timeouts(first_byte=None, between_bytes=600.0, whole_call=None)
"""For endpoints on this machine or in its network: reading a long prompt may take many minutes there, and a request
that is sent again makes the server begin anew."""


class ProviderConfig(Struct, frozen=True, omit_defaults=True):
    """An entry under `providers` of `config.yaml`."""

    base_url: str
    api_mode: ApiMode | None = None
    """The wire format; None: what the address suggests, and `chat_completions` where it says nothing."""
    api_key: str | None = None
    api_key_env: str | None = None
    """The variable that holds the key where `api_key` is not set."""
    api_keys: tuple[str, ...] = ()
    """More keys, used in turn when one is refused or has reached its rate."""
    needs_key: bool = False
    """Refuse to call without a key, instead of letting the provider say so."""
    headers: dict[str, str] = {}
    timeouts: TimeoutSettings | None = None
    """Limits that are not set are the usual ones, or those for local endpoints."""
    local: bool = False
    """Its models run on the user's own machine: nothing is charged."""

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            raise ValueError(
                f"base_url must be an http or https URL such as https://host/v1, found `{self.base_url}`"
            )

    @property
    def mode(self) -> ApiMode:
        return self.api_mode or _mode_of(urlsplit(self.base_url))

    @property
    def effective_timeouts(self) -> Timeouts:
        defaults = LOCAL_TIMEOUTS if self.local or is_private(self.base_url) else Timeouts()
        return defaults if self.timeouts is None else self.timeouts.over(defaults)

    def __repr__(self) -> str:
        """Without the key and the headers: a value that is logged must not give secrets away."""
        return f"ProviderConfig({self.base_url!r}, {self.mode!r})"


def is_private(url: str) -> bool:
    """Whether an address is on this machine or in its own network, as far as it tells."""
    host = (urlsplit(url).hostname or "").lower()
    try:
        return not ip_address(host.partition("%")[0]).is_global
    except ValueError:  # a name: one without a dot is resolved by the network itself
        return "." not in host or host.endswith(PRIVATE_DOMAINS)


def public(url: str) -> str:
    """An address without a user name, a password or a query, any of which may hold a key."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def secrets_in(url: str) -> list[str]:
    """What an address may hold that nobody else should read."""
    parts = urlsplit(url)
    return [word for word in (parts.password, *(value for _, value in parse_qsl(parts.query))) if word]


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False


def _mode_of(url: SplitResult) -> ApiMode:
    """The wire format that is spoken at an address, as far as it tells."""
    host, path = (url.hostname or "").lower(), url.path.rstrip("/").lower()
    if host == "anthropic.com" or host.endswith(".anthropic.com") or path.endswith(("/anthropic", "/anthropic/v1")):
        return "anthropic_messages"
    if host == "api.openai.com":
        return "responses"
    return "chat_completions"
