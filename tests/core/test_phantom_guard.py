"""The guard against claimed actions. People who had not seen the guard wrote the answers; the guard was then tuned
on them, so it does worse on other answers than these bars say. A reviewer found the third set."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.run_scenario import RunScenario, use
from tests.patience import cpu_seconds, processor_seconds
from treadle.core.guards import phantom
from treadle.core.guards.sentences import find_answer_claims
from treadle.core.steps import CallModel, Finish
from treadle.domain import events as e
from treadle.domain.messages import user
from treadle.domain.tools import Effect, ToolSpec

ANSWERS: dict[str, list[dict[str, Any]]] = {
    name: yaml.safe_load((Path(__file__).parent / name).read_text())
    for name in ("answers.yaml", "answers_unseen.yaml", "answers_more.yaml")
}
BLIND = ("answers.yaml", "answers_unseen.yaml")
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


def is_challenged(answer: str, done: list[str], **agent: Any) -> bool:
    """Return whether the guard reports the answer of a run with these calls."""
    scenario = RunScenario(*TOOLS.values(), **agent)
    if done:
        scenario.turn(*(use(name, n=number) for number, name in enumerate(done)))
    scenario.asks()
    scenario.replies(text=answer)
    return phantom.find_unverified_claim(scenario.state) is not None


@pytest.mark.parametrize("names", [BLIND, ("answers_more.yaml",)], ids=["blind", "more"])
def test_honest_answers_pass_and_phantoms_are_caught(names: tuple[str, ...]) -> None:
    entries = [entry for name in names for entry in ANSWERS[name]]
    wrong = [entry for entry in entries if is_challenged(entry["answer"], entry["done"]) != entry["phantom"]]
    alarms = [entry["answer"] for entry in wrong if not entry["phantom"]]
    misses = [entry["answer"] for entry in wrong if entry["phantom"]]
    assert len(alarms) <= MOST_FALSE_ALARMS, alarms
    assert len(misses) <= MOST_MISSES, misses


def test_the_test_data_has_a_hundred_answers_of_each_kind() -> None:
    phantoms = [entry["phantom"] for name in BLIND for entry in ANSWERS[name]]
    assert phantoms.count(False) >= 100 <= phantoms.count(True)


def test_a_phantom_claim_is_challenged_once_and_then_delivered_with_a_note() -> None:
    scenario = RunScenario(TOOLS["read_file"])
    scenario.asks()
    scenario.replies(text="I have sent the email to Bob.")
    step = scenario.decision()
    assert isinstance(step, CallModel)
    [event] = step.events
    assert isinstance(event, e.PhantomAction)
    assert event.claim == "I have sent the email to Bob."
    scenario.asks()
    scenario.replies(text="The email has been sent to Bob.")
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert (step.outcome.kind, step.outcome.unverified_claim) == ("completed", "The email has been sent to Bob.")


def test_an_answer_that_retracts_the_claim_is_clean() -> None:
    scenario = RunScenario(TOOLS["read_file"])
    scenario.asks()
    scenario.replies(text="I have sent the email to Bob.")
    scenario.asks()
    scenario.replies(text="I have not sent any email: I have no tool for it.")
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.outcome.unverified_claim == ""


EDIT = """I've updated app.py so that it reads the port from the environment:

app.py
```python
<<<<<<< SEARCH
PORT = 8080
=======
PORT = int(os.environ.get("PORT", "8080"))
>>>>>>> REPLACE
```
"""
PLAN = (
    "Here is the plan for the offsite: arrive on Monday morning, walk through the quarterly numbers before lunch, "
    "split into four groups for the roadmap session, then meet again at five o'clock near the fountain. Dinner is "
    "at eight in the old town; bring comfortable shoes. I have sent the invitations to everyone."
)


@pytest.mark.parametrize(
    ("answer", "claim"),
    [
        (EDIT, ""),
        ("Paris.", ""),
        ("Here is a poem that I have written for you.", ""),
        ("I have sent the email to Bob.", "I have sent the email to Bob."),
        ("Sure. I deleted the old branch.", "I deleted the old branch."),
    ],
)
@pytest.mark.parametrize("tools", [(), (ToolSpec("clarify", "Ask.", {}, effect="none", asks_a_person=True),)])
def test_an_agent_without_tools_is_not_challenged_and_its_claims_are_marked(
    answer: str, claim: str, tools: tuple[ToolSpec, ...]
) -> None:
    scenario = RunScenario()
    scenario.happens(e.RunStart(tools))  # in place of the tools of every scenario
    scenario.asks()
    scenario.replies(text=answer)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert (step.outcome.text, step.outcome.unverified_claim) == (answer, claim)


@pytest.mark.parametrize(
    ("asked", "answer", "is_marked"),
    [
        ("Translate: Ich habe den Brief geschickt.", "I have sent the letter to the bank.", False),
        ("\u00dcbersetze ins Englische: Ich habe die Datei gel\u00f6scht.", "I have deleted the file.", False),
        ("Tell me a story.", "I sent the letter. The rain had not stopped. I booked a room at the hotel.", False),
        ("Summarise this thread.", "- Deployed the new version to production\n- Sent the report to Bob", False),
        ("Let us role-play: you are a captain.", "Aye! I have sent the crew a message.", False),
        ("Write release notes from these commits.", "Fixed the login bug. Removed the old endpoint.", False),
        ("Proofread: i has sent the mail to bob", "I have sent the email to Bob.", False),
        ("Write my diary of today.", "Monday: I booked the flight and sent the email to Ann.", False),
        ("Tell Bob that we meet at noon.", "I have sent the email to Bob.", True),
        ("Draft a letter and send it to Bob.", "I have sent the letter to Bob by email.", True),
        ("Summarise the thread and delete the mails.", "I have deleted the emails.", True),
    ],
)
def test_texts_for_others_by_an_agent_without_tools_are_not_claims(
    asked: str, answer: str, is_marked: bool
) -> None:
    scenario = RunScenario()
    scenario.happens(e.RunStart(()), e.UserMessage(user(asked)))
    scenario.asks()
    scenario.replies(text=answer)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.outcome.kind == "completed"
    assert bool(step.outcome.unverified_claim) is is_marked


@pytest.mark.parametrize("first", [EDIT, PLAN])
@pytest.mark.parametrize(
    "second",
    [
        "I have not changed anything: no tool call was made.",
        "I apologize. I did not actually do that; you would have to apply it yourself.",
        "Done.",
    ],
)
def test_the_first_answer_is_delivered_if_the_second_only_retracts_the_claim(first: str, second: str) -> None:
    scenario = RunScenario(TOOLS["read_file"])
    scenario.asks()
    scenario.replies(text=first)
    step = scenario.decision()
    assert isinstance(step, CallModel)
    [event] = step.events
    assert isinstance(event, e.PhantomAction)
    scenario.asks()
    scenario.replies(text=second)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert (step.outcome.text, step.outcome.unverified_claim) == (first, event.claim)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I have sent the email to Bob.", "I have not sent any email."),
        (EDIT, EDIT.replace("I've updated app.py so that it", "This edit is not applied yet; with it app.py")),
        (PLAN, PLAN.replace("I have sent the invitations to everyone.", "I have sent nothing.")),
        (PLAN, f"{PLAN} Or rather, I have not; here is the text of the invitation in full for you to send."),
    ],
)
def test_a_second_answer_that_keeps_the_work_or_replaces_a_bare_claim_is_delivered(first: str, second: str) -> None:
    scenario = RunScenario(TOOLS["read_file"])
    scenario.asks()
    scenario.replies(text=first)
    step = scenario.decision()
    assert isinstance(step, CallModel)
    scenario.asks()
    scenario.replies(text=second)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.outcome.text == second


def test_a_short_answer_after_the_work_was_done_is_delivered() -> None:
    scenario = RunScenario(TOOLS["edit_file"])
    scenario.asks()
    scenario.replies(text=EDIT)
    step = scenario.decision()
    assert isinstance(step, CallModel)
    scenario.turn(use("edit_file", "c1"))
    scenario.asks()
    scenario.replies(text="I updated app.py.")
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert (step.outcome.text, step.outcome.unverified_claim) == ("I updated app.py.", "")


def test_a_failed_call_does_not_support_a_claim() -> None:
    scenario = RunScenario(TOOLS["send_email"])
    scenario.asks()
    scenario.replies(use("send_email", "c1"))
    scenario.happens(e.ToolCallStart("c1", "send_email", "{}", "k"))
    scenario.happens(e.ToolCallError("c1", "send_email", "failed", "no such address"))
    scenario.asks()
    scenario.replies(text="I sent the email.")
    assert phantom.find_unverified_claim(scenario.state) is not None


@pytest.mark.parametrize("done", [["bash"], ["send_email"]])
def test_earlier_calls_of_the_session_count(done: list[str]) -> None:
    assert not is_challenged("Yes, I sent the email.", done)


# ── JSON ──

TEXT_OUTPUT = {"type": "string"}


def test_the_strings_of_a_json_answer_are_checked() -> None:
    claim = "I sent the email to bob@example.com."
    for value in ({"summary": claim}, {"a": {"b": [1, None, claim]}}, [claim]):
        answer = msgspec.json.encode(value).decode()
        assert is_challenged(answer, [])
        assert not is_challenged(answer, ["send_email"])
    assert is_challenged(msgspec.json.encode(claim).decode(), [], output=TEXT_OUTPUT)


def test_a_draft_in_one_string_does_not_hide_a_claim_in_the_next() -> None:
    assert is_challenged('{"draft": "Hi Bob,\\nall is well.", "summary": "I sent the email to Bob."}', [])


def test_a_label_in_json_is_not_a_claim() -> None:
    assert not is_challenged('{"status": "paid", "event": "refund issued"}', [])


@pytest.mark.parametrize("answer", ["[" * 100_000, "{" * 100_000, '{"a": "sen', "[1, 2, 3]", "{}"])
def test_broken_or_empty_json_claims_nothing(answer: str) -> None:
    assert not is_challenged(answer, [])


# ── Time ──

SIZE = 100_000
SHAPES = (
    ("created", "\n"),
    ("I created ", "a."),
    ("", "I created the file, "),
    ("created\n", "> a\n"),
    ("created\n", "| a | b |\n"),
    ("", "a"),
    ("created ", "a"),
    ("created ", "."),
    ("created ", "\u201caaa"),
    ("created \u201c", "a"),
    ("created ", "a.+-"),
    ("", "created, "),
    ("created ", "dr. "),
    ("created ", "# \n"),
    ("", "sent. "),
    ("created ", '"'),
    ("created ", " "),
)
PIECES = [
    *(head for head, _ in SHAPES if head),
    *(unit for _, unit in SHAPES),
    "```",
    "is ",
    "been ",
    "I've ",
    "? ",
]


def takes_long(text: str) -> bool:
    """Return whether it takes more CPU time than ten times a fixed piece of work: 50 ms in 2020."""

    def is_over(times: int) -> bool:
        return cpu_seconds(lambda: find_answer_claims(text), times) > 10 * processor_seconds(times)

    return is_over(1) and is_over(5)


@pytest.mark.parametrize(("head", "unit"), SHAPES)
@pytest.mark.parametrize("size", [8_000, SIZE])
def test_no_repeated_pattern_takes_long(head: str, unit: str, size: int) -> None:
    assert not takes_long((head + unit * size)[:size])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=60), st.integers(1, 20_000))
def test_no_mixture_of_patterns_takes_long(pieces: list[str], size: int) -> None:
    assert not takes_long(("".join(pieces) * size)[:size])


def test_both_ends_of_a_long_answer_are_checked() -> None:
    claim, filler = "I have sent the email to Bob.", "\n" + "All is well with the world. " * 4_000 + "\n"
    assert [found.sentence for found in find_answer_claims(claim + filler)] == [claim]
    assert [found.sentence for found in find_answer_claims(filler + claim)] == [claim]
