"""Which deaths of its workers count against a run, what counts as progress, and when the run is ended."""

import pytest

from tests.core.story import AGAIN, READ, Story, spec, use
from treadle.core.steps import CallModel
from treadle.core.suspicion import MAX_DOUBT, Suspicion
from treadle.domain import events as e

KILL = spec("kill")
NOTHING = frozenset({""})


def died(story: Story, *, alone: bool = True, lately: int = 0) -> Suspicion:
    story.happens(e.RunRecovered(1, "died", alone, lately))
    return story.state.guards.suspicion


@pytest.mark.parametrize(
    ("alone", "in_company", "unexplained", "is_suspect", "is_culprit"),
    [
        (1, 0, 0, False, False),
        (0, 1, 0, False, False),
        (2, 0, 0, True, False),
        (0, 2, 0, True, False),
        (3, 0, 0, True, False),
        (4, 0, 0, False, True),
        (2, 2, 0, False, True),
        (0, 9, 0, True, False),
        (0, 10, 0, False, True),
        (2, 2, 1, True, False),
        (3, 2, 1, False, True),
        (7, 2, 400, True, False),
        (8, 2, 400, False, True),
    ],
)
def test_run_becomes_a_suspect_and_then_the_culprit(
    alone: int, in_company: int, unexplained: int, is_suspect: bool, is_culprit: bool
) -> None:
    found = Suspicion(alone, in_company, unexplained)
    assert (found.is_suspect, found.is_culprit) == (is_suspect, is_culprit)


def test_deaths_of_workers_that_did_not_execute_the_run_raise_the_bar() -> None:
    found = Suspicion()
    for lately in (1, 2, 5):
        found.count_death(e.RunRecovered(1, "died", True, lately), NOTHING)
    assert (found.alone, found.unexplained) == (3, 2)
    found.count_death(e.RunRecovered(1, "died", True, 300), NOTHING)
    assert found.unexplained == 296 > MAX_DOUBT
    assert not found.is_culprit


def test_reply_is_progress_after_a_death_in_a_model_call() -> None:
    story = Story(READ)
    story.asks()
    assert died(story, alone=False).deaths == 1
    story.asks()
    story.replies(use("read", path="a"))
    assert story.state.guards.suspicion.deaths == 0


def test_result_of_the_tool_that_was_running_is_progress_and_that_of_another_is_not() -> None:
    story = Story(READ, AGAIN)
    story.asks()
    story.replies(use("again", "c1"), use("read", "c2", path="a"))
    story.happens(e.ToolCallStart("c1", "again", "{}", "key"))
    assert died(story).activities == {"again"}
    story.happens(e.ToolCallEnd("c2", "read", "seen", 1))
    assert story.state.guards.suspicion.deaths == 1
    story.happens(e.ToolCallEnd("c1", "again", "done", 1))
    assert story.state.guards.suspicion.deaths == 0


def test_tool_that_kills_its_worker_is_found_although_its_calls_are_never_repeated() -> None:
    """The model keeps calling it with other arguments. An unknown outcome is not progress, nor are replies and
    results of other tools in the same steps."""
    story = Story(READ, KILL)
    for number in range(4):
        assert isinstance(story.decision(), CallModel)
        story.asks()
        story.replies(use("read", f"r{number}", path=str(number)), use("kill", f"k{number}", n=number))
        story.happens(e.ToolCallStart(f"r{number}", "read", "{}", "key"))
        story.happens(e.ToolCallEnd(f"r{number}", "read", f"seen {number}", 1))
        story.happens(e.ToolCallStart(f"k{number}", "kill", "{}", "key"))
        died(story)
        if number < 3:
            story.works()
    assert story.state.guards.suspicion.is_culprit
    assert story.errors["k0"].kind == "interrupted"


def test_finished_step_without_an_interrupted_call_is_progress() -> None:
    story = Story(READ, KILL)
    story.asks()
    story.replies(use("kill", "k1"))
    story.happens(e.ToolCallStart("k1", "kill", "{}", "key"))
    died(story)
    story.works()
    assert story.state.guards.suspicion.deaths == 1
    story.turn(use("read", path="a"))
    assert story.state.guards.suspicion.deaths == 0
