"""What the programs of these tests share."""

from pathlib import Path

import treadle
from treadle.testing.models import ScriptedModel, ScriptStep


@treadle.tool(effect="external")
def deploy(version: str) -> str:
    """Deploy a version."""
    return f"deployed {version}"


OPERATOR = treadle.Agent("operator", model="scripted/any", tools=[deploy, "clarify"], approvals={"default": "ask"})
HELPER = treadle.Agent("helper", model="scripted/any")


def make_engine(folder: Path, *replies: ScriptStep, approvals: str = "wait", resume: bool = True) -> treadle.Engine:
    """Return an engine as a program makes it."""
    engine = treadle.Engine(
        f"sqlite:///{folder}/program.db",
        home=folder / "home",
        approvals=approvals,  # pyright: ignore[reportArgumentType] -- also what is wrong
        resume=resume,
    )
    if replies:
        engine.add_model("scripted", ScriptedModel(*replies))
    return engine
