"""The examples with web frameworks, queues and telemetry run as they stand: served, called, killed and started
again."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

from tests.stores.postgres.conftest import databases as databases
from tests.stores.postgres.conftest import url as url

EXAMPLES = Path(__file__).parents[2] / "examples"
HAIKU = "Threads cross in silence."


def make_environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}


@contextmanager
def start(tmp_path: Path, *words: str) -> Generator[subprocess.Popen[str]]:
    """Start a program in a folder of its own, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        env=make_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Return the first match in what a program prints. Fail if it ends before."""
    printed: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        printed.append(line)
        if (found := re.search(pattern, line)) is not None:
            return found
    raise AssertionError(f"{pattern} was not printed:\n{''.join(printed)}")


def request(url: str, body: Any = None, token: str | None = None) -> str:
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    content = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, content, headers)) as response:
        return response.read().decode()


def refuse(url: str, body: Any = None, token: str | None = None) -> int:
    """Return the status with which a request is refused."""
    try:
        request(url, body, token)
    except HTTPError as error:
        return error.code
    raise AssertionError(f"{url} was not refused")


def test_users_of_the_fastapi_application_read_only_their_own_sessions(tmp_path: Path) -> None:
    words = ("-m", "uvicorn", "fastapi_app:app", "--app-dir", str(EXAMPLES), "--port", "0")
    with start(tmp_path, *words) as process:
        url = read_until(process, r"running on (http://127\.0\.0\.1:\d+)")[1]
        assert refuse(f"{url}/sessions") in (401, 403)
        assert refuse(f"{url}/login", {"user": "ada", "password": "wrong"}) == 401
        assert refuse(f"{url}/login", {"user": "eve", "password": ""}) == 401
        ada, bob = (
            json.loads(request(f"{url}/login", {"user": user, "password": password}))["token"]
            for user, password in (("ada", "looms-and-engines"), ("bob", "quantum-threads"))
        )
        assert request(f"{url}/ask", {"text": "A haiku."}, ada) == HAIKU
        [session] = json.loads(request(f"{url}/sessions", token=ada))
        assert request(f"{url}/ask", {"text": "Another.", "session": session}, ada) == HAIKU
        messages = json.loads(request(f"{url}/sessions/{session}", token=ada))
        assert messages == ["A haiku.", HAIKU, "Another.", HAIKU]
        assert json.loads(request(f"{url}/sessions", token=bob)) == []
        assert refuse(f"{url}/sessions/{session}", token=bob) == 404
        assert refuse(f"{url}/ask", {"text": "What did Ada say?", "session": session}, bob) == 404


def test_the_django_application_answers_in_synchronous_views(tmp_path: Path) -> None:
    with start(tmp_path, str(EXAMPLES / "django_app.py"), "runserver", "--noreload", "127.0.0.1:0") as process:
        url = read_until(process, r"(http://127\.0\.0\.1:\d+)")[1]
        answered = json.loads(request(f"{url}/answer", {"text": "A haiku."}))
        assert answered["text"] == HAIKU
        assert request(f"{url}/stream", {"text": "Another."}) == HAIKU
        again = json.loads(request(f"{url}/answer", {"text": "More.", "session": answered["session"]}))
        assert again["session"] == answered["session"]
        messages = json.loads(request(f"{url}/sessions/{answered['session']}"))["messages"]
        assert messages == ["A haiku.", HAIKU, "More.", HAIKU]


def test_the_api_below_a_path_of_django_is_for_users_of_its_login(tmp_path: Path) -> None:
    words = ("-m", "uvicorn", "django_asgi:application", "--app-dir", str(EXAMPLES), "--port", "0")
    with start(tmp_path, *words) as process:
        url = read_until(process, r"running on (http://127\.0\.0\.1:\d+)")[1]
        ada, bob = (build_opener(HTTPCookieProcessor()) for _ in range(2))
        for browser, user in ((ada, "ada"), (bob, "bob")):
            assert json.load(browser.open(f"{url}/login/{user}")) == {"user": user}
        assert refuse(f"{url}/agents/v1/agents") == 401
        assert refuse(f"{url}/v1/agents") == 404
        message, headers = json.dumps({"message": "A haiku."}).encode(), {"Content-Type": "application/json"}
        asked = Request(f"{url}/agents/v1/agents/desk/runs?wait=60", message, headers)
        run = json.load(ada.open(asked))
        assert (run["result"]["text"], run["owner"]) == (HAIKU, "ada")
        events = ada.open(f"{url}/agents/v1/runs/{run['run_id']}/events?after=0").read().decode()
        assert "event: run_end" in events
        with pytest.raises(HTTPError, match="404"):
            bob.open(f"{url}/agents/v1/runs/{run['run_id']}")
        assert json.load(bob.open(f"{url}/agents/v1/runs"))["items"] == []


def test_a_worker_that_is_killed_does_each_job_once(tmp_path: Path) -> None:
    worker = str(EXAMPLES / "queue_worker.py")
    for message in ("Describe a loom.", "Describe a treadle."):
        with start(tmp_path, worker, "add", message) as adding:
            assert adding.wait() == 0
    with start(tmp_path, worker, "work") as killed:
        read_until(killed, "published")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    with start(tmp_path, worker, "work") as process:
        out, _ = process.communicate()
        assert process.returncode == 0, out
    assert re.findall(r"job \d: .*", out) == ["job 1: Done.", "job 2: Done."]
    assert (tmp_path / "published.txt").read_text().splitlines() == ["A loom holds threads."] * 2
    with sqlite3.connect(tmp_path / "jobs.db") as jobs:
        assert jobs.execute("SELECT answer, count(DISTINCT run) FROM jobs").fetchall() == [("Done.", 2)]


def test_two_workers_on_postgres_share_the_jobs(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = str(EXAMPLES / "queue_worker.py")
    monkeypatch.setenv("WORKER_DATABASE", url)
    for number in range(4):
        with start(tmp_path, worker, "add", f"Describe loom {number}.") as adding:
            assert adding.wait() == 0
    with start(tmp_path, worker, "work") as one, start(tmp_path, worker, "work") as other:
        for process in (one, other):
            out, _ = process.communicate()
            assert process.returncode == 0, out
    assert (tmp_path / "published.txt").read_text().splitlines() == ["A loom holds threads."] * 4
    with sqlite3.connect(tmp_path / "jobs.db") as jobs:
        assert jobs.execute("SELECT answer, count(DISTINCT run) FROM jobs").fetchall() == [("Done.", 4)]
