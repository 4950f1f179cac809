"""Descriptions of where a context window comes from."""

from collections.abc import Mapping

from treadle.models.catalog import WindowSource

WINDOW_SOURCES: Mapping[WindowSource, str] = {
    "config": "set in config.yaml",
    "catalog": "from the built-in catalog",
    "local": "the size that a local model is started with",
    "server": "reported by its server",
    "assumed": "assumed, because nothing is known about this model",
}
