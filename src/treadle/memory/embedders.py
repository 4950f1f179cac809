"""Resolves an agent's embedder setting: auto, none, local, or provider/model-id."""

from collections.abc import Callable
from typing import Protocol

from treadle.domain.errors import UsageError
from treadle.memory.local_embedder import LocalEmbedder, is_installed
from treadle.memory.remote_embedder import EmbedderEndpoint, RemoteEmbedder
from treadle.ports.memory import Embedder, EmbeddingFailed

Addresses = Callable[[str], EmbedderEndpoint]
"""Returns the endpoint of a provider. Raises UsageError if the provider is unknown or its key is missing."""


class OpenEmbedder(Embedder, Protocol):
    async def close(self) -> None: ...


def refuse_providers(provider: str) -> EmbedderEndpoint:
    """Raise UsageError, for an engine without providers."""
    raise UsageError(f"no provider is called `{provider}`")


class Embedders:
    """The embedders of one process. Nothing is loaded or connected before the first call."""

    def __init__(
        self,
        addresses: Addresses = refuse_providers,
        local_is_installed: Callable[[], bool] = is_installed,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`hide` redacts what must not leave this machine from texts for remote embedders."""
        self._addresses = addresses
        self._local_is_installed = local_is_installed
        self._hide = hide
        self._known: dict[str, OpenEmbedder] = {}

    def find(self, setting: str) -> Embedder | None:
        """Return the embedder, or None if memories are searched by words only. Raise EmbeddingFailed if the setting
        names an unavailable embedder."""
        if setting == "none" or (setting == "auto" and not self._local_is_installed()):
            return None
        name = "local" if setting == "auto" else setting
        if name not in self._known:
            self._known[name] = self._make(name)
        return self._known[name]

    async def close(self) -> None:
        known, self._known = self._known, {}
        for embedder in known.values():
            await embedder.close()

    def _make(self, name: str) -> OpenEmbedder:
        if name == "local":
            if not self._local_is_installed():
                raise EmbeddingFailed(
                    "the local embedder is not installed; install it with `pip install 'treadle[local]'`, or set "
                    "the agent's memory.embedder to auto or none"
                )
            return LocalEmbedder()
        provider, slash, model = name.partition("/")
        if not (provider and slash and model):
            raise EmbeddingFailed(
                f"`{name}` is not an embedder; memory.embedder must be auto, none, local or provider/model-id"
            )
        try:
            return RemoteEmbedder(provider, model, self._addresses(provider), hide=self._hide)
        except UsageError as error:
            raise EmbeddingFailed(f"the embedder {name} cannot be asked: {error}") from error
