"""Every operation of the API has its place in the dashboard."""

import re
from pathlib import Path

from treadle.surfaces.http.api_description import build_description

WEB = Path(__file__).parents[2] / "web" / "src"
ELSEWHERE = {
    "chat.complete": "for clients of OpenAI's API; the chat page starts runs",
    "responses.create": "for clients of OpenAI's API; the chat page starts runs",
    "responses.show": "for clients of OpenAI's API",
    "responses.cancel": "for clients of OpenAI's API",
    "responses.delete": "for clients of OpenAI's API; the page of a session deletes it",
    "responses.input_items": "for clients of OpenAI's API",
    "agents.ag_ui": "for clients of AG-UI; the chat page starts runs",
    "runs.calls": "for clients that run tools; the transcript shows the calls",
    "runs.result": "for clients that run tools; the dashboard brings none",
    "models.list": "for clients of OpenAI's API; the page Models uses system.models",
    "models.show": "for clients of OpenAI's API",
    "events.metrics": "for Prometheus; the page Usage shows the same numbers",
    "events.of_agent": "one stream of all runs serves every page",
    "hooks.receive": "for other services, which sign what they send",
    "channels.webhook": "for platforms, which post messages with a secret",
    "runs.children": "the tree of a run contains them",
    "sessions.transcript": "pages show the transcript of each run, which they also follow live",
    "agents.version": "the difference to the version before shows it",
    "approvals.show": "the list contains all of it",
    "runs.questions": "the transcript contains them",
    "runs.context": "for the terminal UI; the steps of a run show each request with its tokens",
    "runs.output": "for the terminal UI; pages show the result as the model read it",
    "tickets.create": "for pages of other origins; the dashboard has a session cookie",
}
"""Operations that no page calls, with the reason."""
LIVE = {"events.of_all"}
"""Called with `fetch`, not with the typed client."""
UNREPORTED = {
    "events.of_all": "a shared worker calls it, and Playwright does not report the requests of shared workers. "
    "The tests of live updates fail without it",
}
"""Operations that pages call and that browser tests cannot observe, with the reason."""


def templates() -> dict[str, tuple[str, str]]:
    """Return the method and the path of every operation."""
    return {
        operation["operationId"]: (method.upper(), path)
        for path, methods in build_description()["paths"].items()
        for method, operation in methods.items()
    }


def test_every_operation_has_its_place_in_the_dashboard() -> None:
    source = "\n".join(path.read_text() for kind in ("*.svelte", "*.ts") for path in WEB.rglob(kind))
    called = set(re.findall(r'api\.([A-Z]+)\("([^"]+)"', source))
    known = templates()
    missing = {name for name, route in known.items() if route not in called} - set(ELSEWHERE) - LIVE
    assert missing == set(), "a page for it, or a reason why there is none"
    assert {name for name in ELSEWHERE if known.get(name) in called} == set(), "it has a place now"
    assert set(ELSEWHERE) | set(UNREPORTED) <= set(known)
    assert 'fetch("/v1/events"' in source
