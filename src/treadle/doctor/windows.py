"""How people are told where a context window comes from."""

from collections.abc import Mapping

from treadle.models.catalog import WindowSource

WINDOW_SOURCES: Mapping[WindowSource, str] = {
    "config": "set in config.yaml",
    "catalog": "from the built-in catalog",
    "local": "what a model on this machine is started with",
    "server": "as its server says",
    "assumed": "assumed, as nothing is known of this model",
}
