"""Imports the SDK of the protocol quickly.

Most of its start-up time goes into models that a connection never uses, and into reading the source of every model
for the descriptions of JSON schemas that are never made. Both are left out here: 0.45 instead of 1.2 s of CPU time.
The SDK works the same without it."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any


def import_sdk() -> None:
    """Import the SDK. Its models are built when they are first used."""
    with _deferred_models(), _without_docstrings():
        import_module("acp.agent.connection")


@contextmanager
def _deferred_models() -> Generator[None]:
    from pydantic import BaseModel, ConfigDict

    before = BaseModel.model_config
    BaseModel.model_config = ConfigDict(defer_build=True)
    try:
        yield
    finally:
        BaseModel.model_config = before


@contextmanager
def _without_docstrings() -> Generator[None]:
    """Do not read the docstrings of attributes. A pydantic without this function reads them as before."""
    name = "extract_docstrings_from_cls"
    module: Any = None
    with suppress(ImportError):
        module = import_module("pydantic._internal._fields")
    before = getattr(module, name, None)
    if before is None:
        yield
        return

    def read_none(*_args: object, **_options: object) -> dict[str, str]:
        return {}

    setattr(module, name, read_none)
    try:
        yield
    finally:
        setattr(module, name, before)
