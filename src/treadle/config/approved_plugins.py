"""The plugins that an operator has approved, stored in `plugins.yaml` of the home."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from treadle.config.home import Home
from treadle.config.private_files import exists, write_atomically
from treadle.config.yaml_files import dump_yaml, read_struct
from treadle.domain.plugins import Plugin

FILE = "plugins.yaml"
_HEADER = (
    "# The hooks of installed packages that you have approved, each with its package and version. Another version\n"
    "# needs a new approval. `treadle plugins approve` and `treadle plugins revoke` write this file.\n"
)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    hooks: tuple[Plugin, ...] = ()


def read_approved_plugins(home: Home) -> Sequence[Plugin]:
    """Return the approved plugins. Raise ConfigError if the file is damaged."""
    path = home.path / FILE
    return read_struct(path, _File).hooks if exists(path) else ()


def write_approved_plugins(home: Home, plugins: Sequence[Plugin]) -> None:
    values = {"hooks": [msgspec.to_builtins(plugin) for plugin in plugins]}
    home.ensure()
    write_atomically(home.path / FILE, _HEADER + dump_yaml(values))
