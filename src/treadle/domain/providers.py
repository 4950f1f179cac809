"""The settings of a model provider: address, wire format, keys and timeouts."""

from ipaddress import ip_address
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

from msgspec import UNSET, Struct, UnsetType

PRIVATE_DOMAINS = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
ApiMode = Literal["anthropic_messages", "chat_completions", "responses"]
ApiModeName = Literal[ApiMode, "codex_responses"]
"""A wire format as settings may name it. `codex_responses` is another name of `responses`."""


class Timeouts(Struct, frozen=True, omit_defaults=True):
    """Time limits of a model call, in seconds. None turns a limit off."""

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
    """The timeouts that the operator sets for an endpoint. Others keep their defaults; null disables one."""

    first_byte: float | UnsetType | None = UNSET
    """Seconds from sending the request to the first byte of the reply. Default: 120; none for local endpoints."""
    between_bytes: float | UnsetType | None = UNSET
    """Seconds between two parts of the reply. Default: 60; 600 for local endpoints."""
    whole_call: float | UnsetType | None = UNSET
    """Seconds from sending the request to the end of the reply. Default: 600; none for local endpoints."""

    def __post_init__(self) -> None:
        self.apply_to(Timeouts())  # raises if one is invalid

    def apply_to(self, defaults: Timeouts) -> Timeouts:
        """Return all timeouts: those that are set, and the defaults for the others."""
        return Timeouts(
            defaults.first_byte if self.first_byte is UNSET else self.first_byte,
            defaults.between_bytes if self.between_bytes is UNSET else self.between_bytes,
            defaults.whole_call if self.whole_call is UNSET else self.whole_call,
        )


NO_TIMEOUTS = Timeouts(first_byte=None, between_bytes=None, whole_call=None)
"""For the embedded model, whose process is monitored itself."""
LOCAL_TIMEOUTS = Timeouts(first_byte=None, between_bytes=600.0, whole_call=None)
"""For endpoints on this machine or in its network: a long prompt may take many minutes there, and a repeated
request makes the server start over."""


class ProviderConfig(Struct, frozen=True, omit_defaults=True):
    """An entry under `providers` in `config.yaml`."""

    base_url: str
    """The address of the API, for example `https://models.example.com/v1`."""
    api_mode: ApiModeName | None = None
    """The wire format; `codex_responses` means `responses`. Null: derived from the address; `chat_completions` if
    the address does not tell."""
    api_key: str | None = None
    """The key."""
    api_key_env: str | None = None
    """The environment variable that holds the key, if `api_key` is not set."""
    api_keys: tuple[str, ...] = ()
    """Further keys. The next one is used when a key is rejected or has reached its rate limit."""
    needs_key: bool = False
    """Fail before the call if no key is set, instead of letting the provider reject it."""
    headers: dict[str, str] = {}
    """HTTP headers that are sent with every request."""
    timeouts: TimeoutSettings | None = None
    """Time limits of a model call. Those that are not set keep their defaults."""
    local: bool = False
    """The models run on this machine: calls cost nothing, and the server is asked for its context windows."""

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            raise ValueError(
                f"base_url must be an http or https URL such as https://host/v1, found `{self.base_url}`"
            )

    @property
    def mode(self) -> ApiMode:
        if self.api_mode == "codex_responses":
            return "responses"
        return self.api_mode or _guess_mode(urlsplit(self.base_url))

    @property
    def effective_timeouts(self) -> Timeouts:
        defaults = LOCAL_TIMEOUTS if self.local or is_private(self.base_url) else Timeouts()
        return defaults if self.timeouts is None else self.timeouts.apply_to(defaults)

    def __repr__(self) -> str:
        """Return a representation without the key and the headers, so that logs do not expose secrets."""
        return f"ProviderConfig({self.base_url!r}, {self.mode!r})"


def is_private(url: str) -> bool:
    """Return whether an address is on this machine or in its own network, judged by its name."""
    host = (urlsplit(url).hostname or "").lower()
    try:
        return not ip_address(host.partition("%")[0]).is_global
    except ValueError:  # a name without a dot is resolved in the local network
        return "." not in host or host.endswith(PRIVATE_DOMAINS)


def remove_credentials(url: str) -> str:
    """Return an address without user name, password and query, any of which may contain a key."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def find_secrets(url: str) -> list[str]:
    """Return the parts of an address that may be secret."""
    parts = urlsplit(url)
    return [word for word in (parts.password, *(value for _, value in parse_qsl(parts.query))) if word]


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False


def _guess_mode(url: SplitResult) -> ApiMode:
    """Return the wire format that an address suggests."""
    host, path = (url.hostname or "").lower(), url.path.rstrip("/").lower()
    if host == "anthropic.com" or host.endswith(".anthropic.com") or path.endswith(("/anthropic", "/anthropic/v1")):
        return "anthropic_messages"
    if host == "api.openai.com":
        return "responses"
    return "chat_completions"
