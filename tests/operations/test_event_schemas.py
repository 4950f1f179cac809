"""The description of the API gives a type to each event of a stream."""

import json
from typing import Any

import pytest
from jsonschema_rs import Validator, validator_for

from tests.domain.test_envelope import EXAMPLES, event, find_type_name
from treadle.domain.envelope import to_json
from treadle.domain.events import VOCABULARY, EventData
from treadle.surfaces.http.api_description import build_description


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return build_description()


@pytest.fixture(scope="module")
def validators(description: dict[str, Any]) -> dict[str, Validator]:
    """Return the validator of each type of event: compiling one takes longer than all that it validates."""
    components = description["components"]
    mapping = components["schemas"]["Event"]["discriminator"]["mapping"]
    return {
        name: validator_for({"$ref": reference, "components": components}) for name, reference in mapping.items()
    }


@pytest.mark.parametrize("data", EXAMPLES, ids=find_type_name)
def test_an_event_matches_the_schema_of_its_type_and_no_other(
    validators: dict[str, Validator], data: EventData
) -> None:
    assert set(validators) == set(VOCABULARY)
    sent = json.loads(to_json(event(data)))
    matching = [name for name, validator in validators.items() if validator.is_valid(sent)]
    assert matching == [find_type_name(data)]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/agents/{name}/events"])
def test_a_stream_of_all_runs_consists_of_events(description: dict[str, Any], path: str) -> None:
    schema = description["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert schema["contentSchema"] == {"$ref": "#/components/schemas/Event"}
