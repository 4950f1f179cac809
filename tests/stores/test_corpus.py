"""Databases of every format since the baseline open, fold and continue in this version."""

import asyncio
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS
from tests.stores.corpus import make
from tests.testing.harnesses import opened
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.core.fold import fold_all
from treadle.core.state import new_state
from treadle.core.tools.plan import OUTCOME_UNKNOWN
from treadle.domain.events import ToolCallError, UnknownEvent
from treadle.ports.model import ModelRequest
from treadle.stores.sqlite.connection import BASELINE_VERSION, connect, current_version
from treadle.testing.conformance.store import Recorder
from treadle.testing.models import FunctionModel, ScriptStep, say
from treadle.testing.time import FakeClock

CORPUS = sorted(make.FOLDER.glob("v*.sql"), key=lambda dump: int(dump.stem[1:]))


@pytest.fixture(params=CORPUS, ids=lambda dump: dump.stem)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a database of each format."""
    path = str(tmp_path / "treadle.db")
    database = connect(path)
    database.execute(request.param.read_text())
    database.close()
    return path


def test_every_format_is_in_the_corpus() -> None:
    """A new migration brings a new dump: run tests/stores/corpus/make.py and commit what it writes."""
    assert [dump.stem for dump in CORPUS] == [
        f"v{version}" for version in range(BASELINE_VERSION, current_version() + 1)
    ]


def engine_on(path: str, asked: list[ModelRequest]) -> HostedEngine:
    def answer(request: ModelRequest) -> ScriptStep:
        asked.append(request)
        return say("done, in this version")

    engine = create_engine(f"sqlite:///{path}", home=Home(Path(path).parent))
    engine.add_model("fake", FunctionModel(answer))
    engine.add_tools(make.look, make.post)
    return engine


async def test_a_journal_of_each_format_folds(path: str) -> None:
    async with opened(path, Recorder(), FakeClock()) as journal:
        states = {
            record.origin.run_id: fold_all(new_state(record.origin), await journal.read(record.origin.run_id))
            for record in await journal.find()
        }
        waiting, pending, posting, ended = states.values()
        assert {state.agent.name for state in states.values()} == {"ada"}
        assert (ended.outcome, len(ended.own_messages)) == ("completed", 4)
        assert ended.own_messages[-1].text == "The key is in the hall."
        assert [call.phase for call in posting.open_calls] == ["started"]
        assert [message.text for message in posting.turn.inbox] == ["Use the red stamp."]
        assert (pending.has_started, pending.turn.inbox[0].text) == (False, "And where is the key now?")
        assert (waiting.status, waiting.interrupted is not None) == ("waiting", True)
        for record in await journal.find():
            assert states[record.origin.run_id].sequence == record.sequence


async def resume_all(path: str) -> list[ModelRequest]:
    """Take everything up that is unfinished, and see it through."""
    asked: list[ModelRequest] = []
    async with engine_on(path, asked) as engine:
        unfinished = await engine.service.list_unfinished()
        for record in unfinished:
            if record.waiting_for == "interrupted":
                await engine.resume(record.origin.run_id)
        for record in unfinished:
            assert (await engine.wait(record.origin.run_id)).text == "done, in this version"
    return asked


async def test_a_journal_of_each_format_continues(path: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        asked = await resume_all(path)
        async with engine_on(path, asked) as engine:
            runs = await engine.service.runs()
            assert [record.outcome for record in runs] == ["completed"] * 4
            events = [event async for event in engine.events(runs[2].origin.run_id)]
            interrupted = [event.data for event in events if isinstance(event.data, ToolCallError)]
            assert [error.content for error in interrupted] == [OUTCOME_UNKNOWN], "not posted twice"
            unknown = [event for event in events if isinstance(event.data, UnknownEvent)]
            assert [(event.type, event.raw, event.version) for event in unknown] == [
                ("from_the_future", make.FUTURE, 9)
            ]
            texts = [[message.text for message in request.conversation.messages] for request in asked]
            assert any("Use the red stamp." in said for said in texts), "what was steered was not forgotten"
            assert any("Where is the key?" in said and "And where is the key now?" in said for said in texts)
            again = await engine.submit(make.AGENT, "Where is the key?", session="ses_first", key="the first")
            assert again == runs[3].origin.run_id
