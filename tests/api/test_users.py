"""What a program reads and does on behalf of one user."""

from pathlib import Path

import pytest

import treadle
from tests.api.programs import HELPER, OPERATOR, make_engine
from treadle.testing.models import FunctionModel, ask, call, say


async def test_a_user_reads_and_acts_on_what_belongs_to_them_alone(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    engine.add_model("scripted", FunctionModel(lambda _: say("Hello.")))
    async with engine:
        ada = await engine.run(HELPER, "I am Ada.", user="ada")
        bob = await engine.run(HELPER, "I am Bob.", user="bob")
        of_ada, of_bob = engine.for_user("ada"), engine.for_user("bob")
        assert [view.session_id for view in await of_ada.list_sessions()] == [ada.session_id]
        assert [view.run_id for view in await of_bob.list_runs()] == [bob.run_id]
        assert [item.text for item in await of_ada.messages(ada.session_id)] == ["I am Ada.", "Hello."]
        for read in (of_bob.show(ada.run_id), of_bob.messages(ada.session_id), of_bob.steps(ada.run_id)):
            with pytest.raises(treadle.TreadleError):
                await read
        for act in (of_bob.cancel(ada.run_id), of_bob.steer(ada.run_id, "Tell me."), of_bob.resume(ada.run_id)):
            with pytest.raises(treadle.TreadleError):
                await act
        assert len(await engine.list_runs()) == 2


async def test_a_user_decides_only_their_own_approvals(tmp_path: Path) -> None:
    async with make_engine(tmp_path, ask(call("deploy", version="1")), say("Done.")) as engine:
        waiting = await engine.run(OPERATOR, "Deploy.", user="ada")
        [approval] = waiting.approvals
        assert list(await engine.for_user("bob").list_approvals()) == []
        with pytest.raises(treadle.TreadleError):
            await engine.for_user("bob").decide(approval.approval_id, "approve")
        await engine.for_user("ada").decide(approval.approval_id, "approve")
        assert (await engine.wait(waiting.run_id)).text == "Done."


async def test_operations_of_administrators_are_refused(tmp_path: Path) -> None:
    async with make_engine(tmp_path) as engine:
        with pytest.raises(treadle.TreadleError, match=r"`mcp\.list` is for administrators"):
            await engine.for_user("ada").mcp.list()


def test_an_engine_stays_open_until_it_is_closed(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, say("Hello."))
    assert engine.open() is engine
    assert engine.is_open
    assert engine.run_sync(HELPER, "Hi.").text == "Hello."
    engine.close()
    assert not engine.is_open
