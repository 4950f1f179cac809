"""The models of a home: the providers, aliases and keys of its settings."""

import os
import time
from collections.abc import Callable

from treadle.config.home import Home
from treadle.config.home_config import HomeConfig
from treadle.models.catalog import Catalog
from treadle.models.registry import ModelRegistry


def make_model_registry(
    home: Home,
    config: HomeConfig,
    secret: Callable[[str], str | None],
    clock: Callable[[], float] = time.monotonic,
) -> ModelRegistry:
    """Return the models that the settings of a home configure. `secret` returns a value of the vault."""
    models = ModelRegistry(
        os.environ,
        config.defaults.provider,
        Catalog(config.aliases, config.models),
        clock,
        home.weights,
        secret,
        config.defaults.model,
    )
    for name, provider in config.providers.items():
        models.configure(name, provider)
    return models
