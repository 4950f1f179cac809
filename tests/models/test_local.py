"""A real model on this machine: its process, from the first request until the engine closes."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import treadle
from tests.embedded import weights
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.domain.agents import ModelSettings
from treadle.domain.errors import UsageError
from treadle.domain.messages import Text, user
from treadle.models.local import models as local
from treadle.models.local.models import PROFILE, LocalModels
from treadle.ports.model import Completed, Conversation, Failed, ModelRequest, Preamble, TextDelta

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder() -> Path:
    return weights().parent


def hello(model: str = "smollm2") -> ModelRequest:
    return ModelRequest(
        model,
        Preamble("", ()),
        Conversation([user("Say hello.")]),
        ModelSettings(max_tokens=12, temperature=0.0),
        provider="local",
        profile=PROFILE,
    )


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


async def test_the_model_server_starts_once_answers_and_ends_with_the_engine(folder: Path) -> None:
    models, said = LocalModels(folder), list[str]()
    models.notice = said.append
    heard: list[str] = []
    both = await asyncio.gather(
        models.reply(hello(), lambda delta: heard.append(delta.text) if isinstance(delta, TextDelta) else None),
        models.reply(hello(), lambda _: None),
    )
    for end in both:
        assert isinstance(end, Completed), end
        assert end.usage.output_tokens > 0
        assert not end.usage.estimated
    first = both[0]
    assert isinstance(first, Completed)
    assert first.parts == (Text("".join(heard)),)
    [pid] = models.pids
    assert [line.split()[0] for line in said] == ["loading", "loaded"]
    await models.close()
    assert not is_running(pid)


async def test_a_server_that_died_is_restarted(folder: Path) -> None:
    models = LocalModels(folder)
    await models.reply(hello(), lambda _: None)
    [first] = models.pids
    os.kill(first, signal.SIGKILL)
    while is_running(first):  # until it is seen to have ended
        await asyncio.to_thread(os.sched_yield)
    assert isinstance(await models.reply(hello(), lambda _: None), Completed)
    assert models.pids != [first]
    await models.close()


SCRIPT = """
import asyncio, sys
from pathlib import Path
from tests.models.test_local import hello
from treadle.models.local.models import LocalModels

async def main():
    models = LocalModels(Path(sys.argv[1]))
    await models.reply(hello(), lambda _: None)
    print(*models.pids, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_model_server_ends_when_its_parent_is_killed(folder: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, cwd=root) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    for _ in range(200):
        if not is_running(pid):
            return
        signal.sigtimedwait([], 0.02)
    raise AssertionError("the server outlived the process that started it")


async def test_a_model_can_be_a_path(folder: Path, tmp_path: Path) -> None:
    engine = create_engine("sqlite:///:memory:", home=Home(tmp_path))
    agent = treadle.Agent(name="here", model=f"local/{folder}/smollm2.gguf", model_settings={"max_tokens": 8})
    async with engine:
        result = await engine.run(agent, "Say hello.")
    assert result.outcome in ("completed", "truncated")
    assert (result.metrics.cost, result.metrics.unpriced_calls) == (0.0, 0)
    assert engine.models.local.pids == []


# ── What is missing is said ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("smollm2", r"fetch them \(93 MB\) with: treadle models pull smollm2"),
        ("nowhere.gguf", r"There is no file nowhere\.gguf; write local/ and the path of a GGUF file, or one of: "),
    ],
)
def test_missing_weights_are_reported_with_how_to_get_them(tmp_path: Path, model: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        LocalModels(tmp_path).find(model)


def find_no_spec(name: str) -> None:
    """Nothing of that name is installed."""


def test_a_missing_extra_is_reported_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local.importlib.util, "find_spec", find_no_spec)
    with pytest.raises(UsageError, match=r"pip install 'treadle\[local\]'"):
        LocalModels(tmp_path).find("smollm2")


@pytest.fixture
def junk(tmp_path: Path) -> Path:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"GGUF but not really" * 100)
    return path


async def test_a_file_that_is_not_a_model_is_refused(junk: Path) -> None:
    models = LocalModels(junk.parent)
    end = await models.reply(hello(str(junk)), lambda _: None)
    assert isinstance(end, Failed)
    assert (end.kind, end.retryable, end.next_model) == ("unreachable", False, True)
    assert f"{junk} cannot be served" in end.message
    assert models.pids == []
    await models.close()
