"""The description of the API is exact: schemathesis finds no answer that it does not foresee."""

from collections.abc import Generator
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import Failure, FailureGroup

from tests.patience import HANG_SECONDS
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.shell import Shell

EXAMPLES = 4
FOR_EVER = ("/v1/events", "/v1/agents/{name}/events")
"""Streams without an end."""
STATEFUL = (
    "positive_data_acceptance",
    "ensure_resource_availability",
    "object_level_authorization",
    "use_after_free",
)
"""They want ids that exist, or a history; all other checks are on."""
REJECTIONS = ["400", "401", "403", "404", "406", "413", "422", "428", "5xx"]
"""The statuses of a rejected request: those that schemathesis expects, and 413 for a text that is too long."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving, None, None]:
    home = tmp_path_factory.mktemp("described") / "home"
    write_home(home, "http://127.0.0.1:9/v1")
    serving = Serving(Shell(home))
    serving.start()
    yield serving
    serving.stop()


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_response_matches_the_description(server: Serving, mode: GenerationMode) -> None:
    checks.load_all_checks()
    identity = {"Authorization": f"Bearer {server.token}"}
    openapi: Any = schemathesis.openapi
    rejects = {"negative_data_rejection": {"expected-statuses": REJECTIONS}}
    config = cast("Any", schemathesis.Config).from_dict({"checks": rejects})
    schema = openapi.from_url(f"{server.url}/v1/openapi.json", headers=identity, config=config)
    found: list[Any] = [result.ok() for result in schema.exclude(path=list(FOR_EVER)).get_all_operations()]
    assert len(found) > 30
    faults: list[str] = []
    for operation in found:
        try:
            examine(operation, mode, identity)
        except FailureGroup as group:
            faults += [f"{operation.label}: {fault.title}: {fault.message}" for fault in group.exceptions]
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # it takes nothing that could be wrong
        except Failure as fault:
            faults.append(f"{operation.label}: {fault.title}: {fault.message}")
    assert not faults, "\n".join(faults)


def examine(operation: Any, mode: GenerationMode, identity: dict[str, str]) -> None:
    """Ask for what the description allows, or for what it does not, in some ways."""
    without = cast("Any", checks).CHECKS.get_by_names(STATEFUL)

    @given(operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        phases=[Phase.explicit, Phase.generate],
    )
    def ask(case: Any) -> None:
        case.call_and_validate(headers=identity, excluded_checks=without, timeout=HANG_SECONDS)

    ask()
