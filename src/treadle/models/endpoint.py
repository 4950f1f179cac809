"""One provider's address and credentials, and how it is spoken of where people read it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from treadle.domain.providers import Timeouts

_MIN_SECRET = 6  # a shorter value is no secret, and hiding it would only garble the message


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where requests go. Only `transport` sees its key; what people read goes through `censored`."""

    provider: str
    url: str
    """The full address that requests are posted to."""
    api_key: str | None = None
    key_setting: str = "api_key"
    """Where the key was taken from, or would be: named when the provider refuses it."""
    headers: Mapping[str, str] = {}
    timeouts: Timeouts = Timeouts()

    def __repr__(self) -> str:
        return f"Endpoint({self.provider!r}, {self.public_url!r})"

    @property
    def public_url(self) -> str:
        """The address without a user name, a password or a query, any of which may hold a key."""
        url = urlsplit(self.url)
        return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()

    def censored(self, text: str) -> str:
        """The text without the key and the values of extra headers: providers like to quote them."""
        for secret in (self.api_key, *self.headers.values()):
            if secret and len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "[hidden]")
        return text
