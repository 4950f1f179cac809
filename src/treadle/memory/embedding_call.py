"""Asking an embedder, whichever it is: what it answers is checked, and whatever goes wrong is told in one way."""

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from treadle.ports.memory import Embedder, EmbeddingFailed, Vector

_ABOUT_ONE = 1e-3


@runtime_checkable
class Loading(Protocol):
    """An embedder that takes long to be ready for its first answer."""

    @property
    def is_loaded(self) -> bool: ...

    async def load(self) -> None:
        """Raises EmbeddingFailed."""
        ...


async def embedded(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    """One vector for each text, all of them of the same dimensions and of length one. Raises EmbeddingFailed,
    whatever the embedder raises or answers."""
    try:
        answer = await embedder.embed(texts)
        vectors = [_unit(vector) for vector in answer]
    except EmbeddingFailed:
        raise
    except Exception as error:  # an embedder is somebody else's code
        raise EmbeddingFailed(f"the embedder {embedder.name} failed: {type(error).__name__}: {error}") from error
    if len(vectors) != len(texts):
        raise EmbeddingFailed(
            f"the embedder {embedder.name} was asked for {len(texts)} vectors and made {len(vectors)}"
        )
    widths = {len(vector) for vector in vectors}
    if len(widths) > 1:
        raise EmbeddingFailed(f"the embedder {embedder.name} made vectors of {sorted(widths)} numbers at once")
    return vectors


def _unit(vector: Any) -> Vector:
    length = math.hypot(*vector)
    if not 0.0 < length < math.inf:
        raise ValueError("a vector is empty, all zeros or not finite")
    return vector if abs(length - 1.0) < _ABOUT_ONE else [number / length for number in vector]
