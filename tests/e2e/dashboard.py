"""A real `treadle serve` with a scripted model, and a browser that looks at it."""

import asyncio
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.e2e.operation_coverage import record_request
from tests.fake_endpoint import (
    DONE,
    PAUSE,
    Answer,
    Behaviour,
    FakeEndpoint,
    Request,
    calls,
    delta,
    fragment,
    usage,
)
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import Shell
from treadle.surfaces.http.assets import FOLDER
from treadle.vault.store import VaultStore

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
ARGUMENTS = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
needs_assets = pytest.mark.skipif(
    not (FOLDER / "index.html").exists(), reason="the dashboard is not built: run `make web`"
)
WAIT_MS = 30_000
REPORT = """## Findings

The **longest** module is `decide.py`. See the [guide](https://example.com/guide) for why.

| module | lines |
|---|---|
| decide.py | 310 |
| state.py | 254 |

```python
def longest(modules):
    return max(modules, key=lambda each: each.lines)
```

1. Read each module.
2. Count its lines.
"""
FORGETFUL = {"recall": 0}
"""The model answers what a message says; a memory of an earlier message would be answered too."""
AGENTS: dict[str, dict[str, Any]] = {
    "default": {
        "persona": "You are a careful engineer.",
        "tools": ["bash", "clarify", "memory_save"],
        "memory": FORGETFUL,
    },
    "reviewer": {
        "memory": FORGETFUL,
        "persona": "You review changes.",
        "tools": ["bash", "clarify"],
        "approvals": {"default": "ask", "via": "api"},
    },
}


def reply(request: Request) -> Behaviour:
    """Answer as the last user message says: `tool`, `approve`, `ask`, `slow`, or anything else."""
    messages: list[dict[str, Any]] = request.json.get("messages", [])
    last = messages[-1] if messages else dict[str, Any]()
    text = next((_text(each) for each in reversed(messages) if each["role"] == "user"), "")
    if not messages:  # a webhook
        return Answer([b"no"], 500, {"Content-Type": "text/plain"}, framing="length")
    if last.get("role") == "tool":
        return _said("Done. " + REPORT)
    if "write a file" in text:
        command = json.dumps({"command": "echo made > made.txt"})
        return calls(fragment(0, f"call_{len(messages)}", "bash", command))
    if "use a tool" in text or "approve" in text:
        command = json.dumps({"command": "echo counted 14 modules"})
        return calls(fragment(0, f"call_{len(messages)}", "bash", command))
    if "ask me" in text:
        question = json.dumps({"question": "Which branch should I use?", "options": ["main", "develop"]})
        return calls(fragment(0, f"call_{len(messages)}", "clarify", question))
    if "slow" in text:
        return Answer(
            [
                delta(role="assistant", content="Beginning… "),
                PAUSE,
                delta(content="finished."),
                delta("stop"),
                usage(),
                DONE,
            ]
        )
    if "fail" in text:
        return Answer(
            [b'{"error": {"message": "no such model"}}'],
            404,
            {"Content-Type": "application/json"},
            framing="length",
        )
    return _said(REPORT)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _said(text: str) -> Answer:
    pieces = [delta(content=text[at : at + 24]) for at in range(0, len(text), 24)]
    return Answer([delta(role="assistant", content=""), *pieces, delta("stop"), usage(1240, 310, 900), DONE])


class BackgroundLoop:
    """An event loop in a thread of its own, for what a test serves while the browser waits."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Any) -> Any:
        """Run a coroutine on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class ModelEndpoint:
    """The scripted model, on a loop of its own."""

    def __init__(self, policy: Callable[[Request], Behaviour] = reply) -> None:
        self._background = BackgroundLoop()
        self.endpoint = self._background.do(self._open(policy))

    async def _open(self, policy: Callable[[Request], Behaviour]) -> FakeEndpoint:
        return await FakeEndpoint(policy=policy).__aenter__()

    def go_on(self) -> None:
        """Let slow answers finish."""
        self._background.loop.call_soon_threadsafe(self.endpoint.go_on.set)

    def close(self) -> None:
        self._background.do(self.endpoint.__aexit__(None, None, None))
        self._background.close()


class Board:
    """A server with a dashboard, and its owner's token."""

    def __init__(
        self,
        folder: Path,
        policy: Callable[[Request], Behaviour] = reply,
        mcp_servers: dict[str, Any] | None = None,
        channels: dict[str, Any] | None = None,
        secrets: dict[str, str] | None = None,
    ) -> None:
        self.model = ModelEndpoint(policy)
        self.shell = Shell(folder / "home", self.model.endpoint.url).configure()
        self.shell.write(
            "config.yaml",
            f"{{providers: {{fake: {{base_url: '{self.model.endpoint.url}'}}}}, defaults: {{model: fake/m}}, "
            "models: {fake/m: {prices: {input: 3, output: 15}}, fake/n: {prices: {input: 1, output: 5}}}, "
            "webhooks: {allow_local: true}, "
            f"mcp_servers: {json.dumps(mcp_servers or {})}, channels: {json.dumps(channels or {})}}}",
        )
        vault = VaultStore(self.shell.home, {})
        for name, value in (secrets or {}).items():
            vault.put(name, value)
        vault.close()
        self.server = Serving(self.shell)
        self.server.start()
        for name, settings in AGENTS.items():
            body = {"name": name, "model": "fake/m", "retry": {"attempts": 0}, **settings}
            self.call(
                "PUT" if name == "default" else "POST", f"/v1/agents{'/' + name if name == 'default' else ''}", body
            )

    @property
    def url(self) -> str:
        return self.server.url

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request with the token."""
        headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(HttpRequest(self.url + path, data, headers, method=method), timeout=60) as response:
                content = response.read()
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None
        return json.loads(content) if content else None

    def change_store(self, statement: str, *values: Any) -> None:
        """Change the database behind the back of the server, as time or another process would."""
        with sqlite3.connect(self.shell.home / "treadle.db", timeout=30) as database:
            database.execute(statement, values)
        database.close()

    def run(self, message: str, agent: str = "default", wait: float = 30, **more: Any) -> Any:
        """Start a run, and wait for its end unless `wait` is 0."""
        return self.call("POST", f"/v1/agents/{agent}/runs", {"message": message, "wait": wait or None, **more})

    def close(self) -> None:
        self.server.stop()
        self.model.close()


class Visitor:
    """A browser window, with everything that it complained about and every request that it sent."""

    def __init__(self, context: BrowserContext, board: Board) -> None:
        self.context = context
        self.board = board
        self.complaints: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.page = self.open()

    def open(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append((request.method, request.url)))
        page.on("response", lambda response: self._record(response.request.method, urlsplit(response.url).path))
        return page

    def _record(self, method: str, path: str) -> None:
        """Record which operations the server answered, for the check at the end of the test run."""
        if path.startswith("/v1/"):
            record_request(method, path)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def sign_in(self, token: str | None = None) -> Page:
        page = self.page
        page.goto(f"{self.board.url}/sign-in")
        page.get_by_label("Access token").fill(token or self.board.server.token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("navigation", name="Pages").wait_for()
        return page if token else self.see("/runs")

    def see(self, path: str, page: Page | None = None) -> Page:
        """Open a page and wait until it has loaded."""
        page = page or self.page
        page.goto(self.board.url + path)
        page.locator("#main h1").wait_for()
        expect(page.locator(".skeleton")).to_have_count(0, timeout=WAIT_MS)
        return page

    def foreign_requests(self) -> list[str]:
        """Return the requests to other origins."""
        return [url for _, url in self.requests if not url.startswith((self.board.url, "blob:", "data:"))]


@contextmanager
def open_browser() -> Generator[Browser]:
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *sandbox])
        try:
            yield browser
        finally:
            browser.close()


def axe_violations(page: Page) -> list[str]:
    """Return what axe finds wrong with a page."""
    page.evaluate(AXE.read_text())  # evaluated by the debugger, which the policy of the page does not concern
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def find_overflow(page: Page) -> list[str]:
    """Return what is wider than the window, or than the table's panel that must scroll for it. The content of the
    page scrolls, so the document alone is never too wide."""
    return page.evaluate(
        """() => {
            const main = document.getElementById('main');
            const found = [document.documentElement, main].filter((each) => each.scrollWidth > each.clientWidth);
            const tables = [...main.querySelectorAll('table')];
            const wide = tables.filter((each) => each.scrollWidth > each.parentElement.clientWidth + 1);
            return [...found, ...wide].map((each) => {
                const inner = [...each.querySelectorAll('*')].find(
                    (part) => part.getBoundingClientRect().right > innerWidth + 1);
                const part = inner ? `${inner.tagName} ${inner.textContent.slice(0, 40)}` : '';
                return `${each.tagName} is ${each.scrollWidth} px wide: ${part}`;
            });
        }"""
    )


PAGES = {
    "runs": "/runs",
    "chat": "/chat",
    "overview": "/overview",
    "approvals": "/inbox",
    "usage": "/usage",
    "agents": "/agents",
    "agent": "/agents/default",
    "new-agent": "/agents/new",
    "models": "/models",
    "memory": "/memory",
    "skills": "/skills",
    "evaluations": "/evaluations",
    "mcp-servers": "/mcp-servers",
    "schedules": "/schedules",
    "inbound-webhooks": "/inbound-webhooks",
    "webhooks": "/webhooks",
    "vault": "/vault",
    "tokens": "/tokens",
    "users": "/users",
    "system": "/system",
    "reference": "/reference",
    "search": "/search?text=module",
    "compare": "/compare",
}


def fill(board: Board) -> dict[str, str]:
    """Put something on every page. Return the paths of the pages that it makes."""
    first = board.run("Which module is the longest? use a tool")
    second = board.run("Summarise the release notes for the team")
    board.run("Summarise them shorter", session_id=second["session_id"])
    board.run("fail please, so that there is an error to see")
    board.call(
        "POST", "/v1/schedules", {"agent": "default", "message": "Good morning: what is new?", "every": "1d"}
    )
    board.call("POST", "/v1/hooks", {"name": "ci", "agent": "default", "message": "{{payload}}"})
    board.call("POST", "/v1/webhooks", {"url": "https://example.com/hook", "events": ["run_end"]})
    board.call(
        "POST",
        "/v1/memory",
        {
            "agent": "default",
            "text": "The team prefers **short** answers.\n\n- no `emoji`\n- see the [guide](https://example.com/guide)",
            "pinned": True,
        },
    )
    board.call(
        "PUT",
        "/v1/vault/GITHUB_TOKEN",
        {"value": "ghp_3kd93kd9skd93kslw", "grants": [{"agent": "default", "tool": "bash"}]},
    )
    waiting = board.run("approve this: count the modules", "reviewer", wait=0)
    for _ in range(600):
        if board.call("GET", "/v1/approvals")["items"]:
            break
        threading.Event().wait(0.05)
    run = first["run_id"]
    return {
        "run": f"/runs/{run}",
        "timeline": f"/runs/{run}?tab=timeline",
        "steps": f"/runs/{run}?tab=steps",
        "events": f"/runs/{run}?tab=events",
        "files": f"/runs/{run}?tab=files",
        "tree": f"/runs/{run}?tab=tree",
        "waiting": f"/runs/{waiting['run_id']}",
        "session": f"/chat/{second['session_id']}",
        "comparison": f"/compare?left={run}&right={second['run_id']}",
    }
