"""One provider's address and credentials, and how they are shown in messages."""

from collections.abc import Mapping

from msgspec import Struct

from treadle.domain.providers import Timeouts, find_secrets, remove_credentials
from treadle.models.http.keys import KeyRing, ProviderKey

_MIN_SECRET_CHARACTERS = 6  # a shorter value is not a secret, and hiding it would garble the message


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where requests go. Only `transport` sees the keys; text for people goes through `redact`."""

    provider: str
    url: str
    """The full URL that requests are posted to."""
    keys: KeyRing = KeyRing()
    key_setting: str = "api_key"
    """The setting that a key would come from if there were one."""
    headers: Mapping[str, str] = {}
    timeouts: Timeouts = Timeouts()

    def __repr__(self) -> str:
        return f"Endpoint({self.provider!r}, {self.public_url!r})"

    @property
    def public_url(self) -> str:
        """Return the URL without user name, password and query, any of which may contain a key."""
        return remove_credentials(self.url)

    def setting_of(self, key: ProviderKey | None) -> str:
        return self.key_setting if key is None else key.setting

    def redact(self, text: str) -> str:
        """Return the text without the keys and the values of extra headers, which providers often quote."""
        words = [word for value in self.headers.values() for word in (value, value.rpartition(" ")[2])]
        for secret in (*[key.value for key in self.keys], *words, *find_secrets(self.url)):
            if secret and len(secret) >= _MIN_SECRET_CHARACTERS:
                text = text.replace(secret, "[hidden]")
        return text
