"""A client that runs its own tools, in a process of its own. The server is killed while the second of three calls
runs, and started again."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fake_endpoint import Policy
from tests.peers.served_agent import ServedAgent, call_thrice, read_journals

SECONDS = 240
WEATHER = "weather"
CITIES = ("Oslo", "Rome", "Lima")
WAITS_IN = "Rome"
"""Tools named `weather` create the file `waiting` when they get this city, and wait for the file `restarted`. They
append each city to the file `executed`, and return `sun in CITY`."""


def call_weather_thrice() -> Policy:
    """Return a model that asks for the weather of each city and then answers."""
    return call_thrice(WEATHER, *({"city": city} for city in CITIES))


def run_client(words: Sequence[str], folder: Path, environment: Mapping[str, str], agent: ServedAgent) -> str:
    """Run a client, and return what it prints. Kill the server and start it again while its second call runs."""
    complaints = folder.parent / "complaints"
    with (
        complaints.open("w") as errors,
        subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, "HOME": str(folder.parent), "PWD": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as client,
    ):
        try:
            deadline = time.monotonic() + SECONDS
            while not (folder / "waiting").exists():
                assert client.poll() is None, complaints.read_text()
                assert time.monotonic() < deadline, complaints.read_text()
                time.sleep(0.05)
            agent.kill()
            agent.start()
            (folder / "restarted").touch()
            output, _ = client.communicate(timeout=SECONDS)
        finally:
            client.kill()
    assert client.returncode == 0, output + complaints.read_text()
    return output


def make_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "client" / "work"
    folder.mkdir(parents=True)
    return folder


def check_weather(agent: ServedAgent, folder: Path, *, others: int = 0) -> None:
    """Check that the client ran each call once, and that the journal and the model have each once."""
    assert (folder / "executed").read_text().split() == list(CITIES)
    check_conversation(agent, WEATHER, [f"sun in {city}" for city in CITIES], others=others)


def check_conversation(agent: ServedAgent, tool: str, results: Sequence[str], *, others: int = 0) -> None:
    """Check that the model was asked once for each step and told each result once, and `check_journals`."""
    turns = [body["messages"] for body in (request.json for request in agent.endpoint.requests) if _has(body, tool)]
    assert len(turns) == len(results) + 1, "each step was asked once"
    told = [message["content"] for message in turns[-1] if message["role"] == "tool"]
    assert len(told) == len(results)
    for content, result in zip(told, results, strict=True):
        assert result in content
    check_journals(read_journals(agent.url, agent.token), tool, results, others=others)


def check_journals(
    journals: Sequence[Sequence[dict[str, Any]]], tool: str, results: Sequence[str], *, others: int = 0
) -> None:
    """Check that the journals have each call of the tool and its result once, besides calls of `others`."""
    called: dict[tuple[int, str], str] = {}
    delivered: dict[tuple[int, str], str] = {}
    for run, events in enumerate(journals):
        for event in events:
            data = event["data"]
            match event["type"]:
                case "client_call_requested":
                    _add(called, (run, data["call_id"]), data["name"])
                case "client_result":
                    _add(delivered, (run, data["call_id"]), data["content"])
                case _:
                    pass
    assert len(called) == len(results) + others
    kept = [delivered[place] for place, name in called.items() if name == tool]
    for content, result in zip(kept, results, strict=True):
        assert result in content


def _add(found: dict[tuple[int, str], str], place: tuple[int, str], text: str) -> None:
    assert place not in found, f"the journal has {place} twice"
    found[place] = text


def _has(body: Any, tool: str) -> bool:
    return any(each["function"]["name"] == tool for each in body.get("tools", ()))
