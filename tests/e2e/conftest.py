"""Fixtures of the end-to-end tests, and the check that browsers call every operation of the API."""

import os
from pathlib import Path

import pytest

from tests.e2e.operation_coverage import OperationCoverage, Templates
from tests.e2e.terminal_stage import stage as stage
from tests.surfaces.test_dashboard_operations import ELSEWHERE, UNREPORTED, templates


def pytest_configure(config: pytest.Config) -> None:
    """Check in the process that collects the reports of all workers."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(OperationCoverage(Path(__file__).parent, list_dashboard_operations))


def list_dashboard_operations() -> Templates:
    """Return the operations that a page of the dashboard calls and the browser reports."""
    return {name: route for name, route in templates().items() if name not in ELSEWHERE | UNREPORTED}
