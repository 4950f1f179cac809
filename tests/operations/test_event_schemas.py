"""The description of the API gives a type to each event of a stream."""

import json
from typing import Any

import jsonschema_rs
import pytest

from tests.domain.test_envelope import EXAMPLES, event, find_type_name
from treadle.domain.envelope import to_json
from treadle.domain.events import VOCABULARY, EventData
from treadle.surfaces.http.api_description import build_description


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return build_description()


@pytest.mark.parametrize("data", EXAMPLES, ids=find_type_name)
def test_an_event_matches_the_schema_of_its_type_and_no_other(description: dict[str, Any], data: EventData) -> None:
    components = description["components"]
    mapping = components["schemas"]["Event"]["discriminator"]["mapping"]
    assert set(mapping) == set(VOCABULARY)
    sent = json.loads(to_json(event(data)))
    matching = [
        name
        for name, reference in mapping.items()
        if jsonschema_rs.is_valid({"$ref": reference, "components": components}, sent)
    ]
    assert matching == [find_type_name(data)]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/agents/{name}/events"])
def test_a_stream_of_all_runs_consists_of_events(description: dict[str, Any], path: str) -> None:
    schema = description["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert schema["contentSchema"] == {"$ref": "#/components/schemas/Event"}
