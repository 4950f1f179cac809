"""One provider's address and credentials, and how it is spoken of where people read it."""

from collections.abc import Mapping

from msgspec import Struct

from treadle.domain.providers import Timeouts, find_secrets, remove_credentials
from treadle.models.http.keys import KeyRing, ProviderKey

_MIN_SECRET_CHARACTERS = 6  # a shorter value is no secret, and hiding it would only garble the message


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where requests go. Only `transport` sees its keys; what people read goes through `censored`."""

    provider: str
    url: str
    """The full address that requests are posted to."""
    keys: KeyRing = KeyRing()
    key_setting: str = "api_key"
    """Where a key would be taken from, if there were one."""
    headers: Mapping[str, str] = {}
    timeouts: Timeouts = Timeouts()

    def __repr__(self) -> str:
        return f"Endpoint({self.provider!r}, {self.public_url!r})"

    @property
    def public_url(self) -> str:
        """The address without a user name, a password or a query, any of which may hold a key."""
        return remove_credentials(self.url)

    def setting_of(self, key: ProviderKey | None) -> str:
        return self.key_setting if key is None else key.setting

    def censored(self, text: str) -> str:
        """The text without the keys and the values of extra headers: providers like to quote them."""
        words = [word for value in self.headers.values() for word in (value, value.rpartition(" ")[2])]
        for secret in (*[key.value for key in self.keys], *words, *find_secrets(self.url)):
            if secret and len(secret) >= _MIN_SECRET_CHARACTERS:
                text = text.replace(secret, "[hidden]")
        return text
