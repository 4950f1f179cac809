"""Parameters of requests that both formats have: which have no effect, and the metadata."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.labels import make_labels
from treadle.surfaces.http.dependencies import ApiRequest, get_services
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

SESSION_NAME = "treadle_session"
"""The metadata that names a session."""
_DEFAULTS: Final[tuple[Any, ...]] = (None, False, 0, "auto", "default", "disabled", ["text"], [], {})
"""Values that ask for nothing."""


def list_given(data: Struct, names: Iterable[str]) -> list[str]:
    """Return those of these parameters that a request sets to something other than the default."""
    return [name for name in names if getattr(data, name) not in _DEFAULTS]


def list_unsent(agent: AgentSpec, data: Struct, request: ApiRequest) -> list[str]:
    """Return the parameters of a request that the model of the agent does not take."""
    unsent = get_services(request).service.list_unsent_settings(agent)
    return [name for name in unsent if getattr(data, name, None) is not None]


def read_metadata(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the metadata for the run. Raise InvalidParameterValue for metadata that a run cannot have."""
    given = {name: value for name, value in (metadata or {}).items() if name != SESSION_NAME}
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidParameterValue("metadata", f"The value of `metadata.{name}` must be text.")
    try:
        return make_labels((), given).metadata
    except ValueError as error:
        raise InvalidParameterValue("metadata", f"`metadata` is invalid: {error}.") from None
