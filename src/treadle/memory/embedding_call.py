"""Calls to an embedder, with a check of its result and uniform errors."""

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from treadle.ports.memory import Embedder, EmbeddingFailed, Vector

_LENGTH_TOLERANCE = 1e-3


@runtime_checkable
class LoadableEmbedder(Protocol):
    """An embedder that needs a long time to load before its first result."""

    @property
    def is_loaded(self) -> bool: ...

    async def load(self) -> None:
        """Load the embedder. Raise EmbeddingFailed."""
        ...


async def embed_checked(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    """Return one vector per text, all of the same dimensions and of length one. Raise EmbeddingFailed, whatever the
    embedder raises or returns."""
    try:
        result = await embedder.embed(texts)
        vectors = [_normalize(vector) for vector in result]
    except EmbeddingFailed:
        raise
    except Exception as error:  # an embedder may be third-party code
        raise EmbeddingFailed(f"the embedder {embedder.name} failed: {type(error).__name__}: {error}") from error
    if len(vectors) != len(texts):
        raise EmbeddingFailed(
            f"the embedder {embedder.name} was asked for {len(texts)} vectors and made {len(vectors)}"
        )
    widths = {len(vector) for vector in vectors}
    if len(widths) > 1:
        raise EmbeddingFailed(f"the embedder {embedder.name} made vectors of {sorted(widths)} numbers at once")
    return vectors


def _normalize(vector: Any) -> Vector:
    length = math.hypot(*vector)
    if not 0.0 < length < math.inf:
        raise ValueError("a vector is empty, all zeros or not finite")
    return vector if abs(length - 1.0) < _LENGTH_TOLERANCE else [number / length for number in vector]
