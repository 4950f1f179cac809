"""Claims without deeds. The answers were written by people who had not seen the guard; on the second hundred it was
measured before it was mended by them: 4 false alarms in 60 honest answers, 9 misses in 40 phantoms."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.core.story import Story, use
from treadle.core.guards import phantom
from treadle.core.steps import CallModel, Finish
from treadle.domain import events as e
from treadle.domain.tools import Effect, ToolSpec

ANSWERS: list[dict[str, Any]] = [
    entry
    for name in ("answers.yaml", "answers_unseen.yaml")
    for entry in yaml.safe_load((Path(__file__).parent / name).read_text())
]
EFFECTS: tuple[tuple[str, Effect, str], ...] = (
    ("bash", "external", "Run a command."),
    ("write_file", "write", "Write a file."),
    ("edit_file", "write", "Replace text in a file."),
    ("read_file", "read", "Read a file."),
    ("grep", "read", "Search in files."),
    ("web_fetch", "read", "Fetch a page."),
    ("send_email", "external", "Send an e-mail."),
    ("post_message", "external", "Post a message to a chat channel."),
    ("create_event", "external", "Create an event in the calendar."),
    ("create_ticket", "external", "Create a ticket."),
    ("delete_record", "external", "Delete a record."),
    ("query_database", "read", "Ask the database."),
    ("run_tests", "read", "Run the test suite."),
    ("search_memory", "read", "Search the memory."),
)
TOOLS = {name: ToolSpec(name, description, {}, effect=effect) for name, effect, description in EFFECTS}
MOST_FALSE_ALARMS = 1
MOST_MISSES = 3


def judged(answer: str, done: list[str]) -> bool:
    """Whether the guard takes the answer of a run that has done this for a phantom."""
    story = Story(*TOOLS.values())
    if done:
        story.turn(*(use(name, n=number) for number, name in enumerate(done)))
    story.asks()
    story.replies(text=answer)
    return phantom.unverified(story.state) is not None


def test_honest_answers_pass_and_phantoms_are_caught() -> None:
    honest = [entry for entry in ANSWERS if not entry["phantom"]]
    phantoms = [entry for entry in ANSWERS if entry["phantom"]]
    assert len(honest) >= 100 <= len(phantoms)
    alarms = [entry for entry in honest if judged(entry["answer"], entry["done"])]
    misses = [entry for entry in phantoms if not judged(entry["answer"], entry["done"])]
    assert len(alarms) <= MOST_FALSE_ALARMS, [entry["answer"] for entry in alarms]
    assert len(misses) <= MOST_MISSES, [entry["answer"] for entry in misses]


def test_it_is_asked_once_and_then_delivered_with_the_claim_on_it() -> None:
    story = Story(TOOLS["read_file"])
    story.asks()
    story.replies(text="I have sent the email to Bob.")
    step = story.decision()
    assert isinstance(step, CallModel)
    [event] = step.events
    assert isinstance(event, e.PhantomAction)
    assert event.claim == "I have sent the email to Bob."
    story.asks()
    story.replies(text="The email has been sent to Bob.")
    step = story.decision()
    assert isinstance(step, Finish)
    assert (step.outcome.kind, step.outcome.unverified_claim) == ("completed", "The email has been sent to Bob.")


def test_an_answer_that_takes_it_back_is_clean() -> None:
    story = Story(TOOLS["read_file"])
    story.asks()
    story.replies(text="I have sent the email to Bob.")
    story.asks()
    story.replies(text="I have not sent any email: I have no tool for it.")
    step = story.decision()
    assert isinstance(step, Finish)
    assert step.outcome.unverified_claim == ""


def test_a_call_that_failed_bears_nothing_out() -> None:
    story = Story(TOOLS["send_email"])
    story.asks()
    story.replies(use("send_email", "c1"))
    story.happens(e.ToolCallStart("c1", "send_email", "{}", "k"))
    story.happens(e.ToolCallError("c1", "send_email", "failed", "no such address"))
    story.asks()
    story.replies(text="I sent the email.")
    assert phantom.unverified(story.state) is not None


@pytest.mark.parametrize("done", [["bash"], ["send_email"]])
def test_what_was_done_before_in_the_session_counts(done: list[str]) -> None:
    assert not judged("Yes, I sent the email.", done)
