"""Transcript repair turns any conversation into one that providers accept."""

from hypothesis import given
from hypothesis import strategies as st

from treadle.core.context.transcript import LOST_RESULT, Transcript, make_call_ids_unique, repair
from treadle.domain.messages import Image, Message, Part, Role, Text, Thinking, ToolResult, ToolUse, user

ids = st.sampled_from(["", "a", "b", "a_2", "a_3", "call", "call_2", "a_2_2", "\ud800"])
texts = st.one_of(
    st.sampled_from(["", " ", "\n", "\ud800", "a\x00b", "\udfff ok"]), st.text(max_size=5), st.just("words")
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, st.just("p"), st.just("m")),
    st.builds(ToolUse, ids, st.sampled_from(["read", "write"]), st.sampled_from(["{}", '{"a":"\ud800"}', "{"])),
    st.builds(ToolResult, ids, texts, st.booleans()),
    st.builds(Image, st.just("image/png"), st.just("aGk=")),
)
roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant", "tool"])
conversations = st.lists(st.builds(Message, roles, st.lists(parts, max_size=5).map(tuple)), max_size=8)


# ── An independent judge of what a provider takes ──


def faults(messages: tuple[Message, ...]) -> list[str]:
    """Everything that a provider would reject about a conversation."""
    found = [fault for message in messages for fault in _faults_of(message)]
    if messages and messages[0].role != "user":
        found.append("the user does not speak first")
    calls = [use.call_id for message in messages for use in message.calls]
    if len(calls) != len(set(calls)):
        found.append("two calls have one id")
    for before, message in zip((None, *messages), (*messages, None), strict=True):
        asked = [use.call_id for use in before.calls] if before is not None else []
        given = _results(message) if message is not None and message.role == "tool" else []
        if asked != given:
            found.append(f"calls {asked} are followed by results {given}")
    return found


def _results(message: Message) -> list[str]:
    return [part.call_id for part in message.parts if isinstance(part, ToolResult)]


KINDS: dict[Role, tuple[type[Part], ...]] = {
    "user": (Text, Image),
    "assistant": (Text, Thinking, ToolUse, Image),
    "tool": (ToolResult,),
}


def _faults_of(message: Message) -> list[str]:
    found: list[str] = []
    if not message.parts or all(isinstance(part, Thinking) for part in message.parts):
        found.append("a message says nothing")
    for part in message.parts:
        if not isinstance(part, KINDS[message.role]):
            found.append(f"a {type(part).__name__} in a message of role {message.role}")
        if isinstance(part, Text) and not part.text.strip():
            found.append("an empty text")
        if isinstance(part, ToolUse) and not part.call_id:
            found.append("a call without an id")
        found += [f"{text!r} cannot be sent" for text in _strings(part) if not _can_be_sent(text)]
    return found


def _strings(part: Part) -> list[str]:
    match part:
        case Text(text) | Thinking(text=text):
            return [text]
        case ToolUse(call_id, name, arguments):
            return [call_id, name, arguments]
        case ToolResult(call_id, content):
            return [call_id, content]
        case Image():
            return []


def _can_be_sent(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


# ── Properties ──


@given(conversations)
def test_a_repaired_transcript_is_valid_for_every_provider(messages: list[Message]) -> None:
    assert faults(repair(messages)) == []


@given(conversations)
def test_repairing_twice_changes_nothing_more(messages: list[Message]) -> None:
    once = repair(messages)
    assert repair(once) == once


@given(conversations, conversations)
def test_earlier_messages_do_not_change_when_more_follow(before: list[Message], after: list[Message]) -> None:
    transcript = Transcript()
    for message in before:
        transcript.add(message)
    sent = list(transcript.messages)
    for message in after:
        transcript.add(message)
    assert transcript.messages[: len(sent)] == sent


@given(st.lists(parts, max_size=8).map(tuple), st.sets(ids))
def test_call_ids_of_a_reply_are_new_to_the_run(reply: tuple[Part, ...], taken: set[str]) -> None:
    unique = make_call_ids_unique(reply, taken.__contains__, prefix="call_1")
    given_ids = [part.call_id for part in unique if isinstance(part, ToolUse)]
    assert len(set(given_ids)) == len(given_ids)
    assert not set(given_ids) & taken
    assert all(given_ids)
    assert [part for part in unique if not isinstance(part, ToolUse)] == [
        part for part in reply if not isinstance(part, ToolUse)
    ]


# ── Examples ──


def call(call_id: str) -> ToolUse:
    return ToolUse(call_id, "read", "{}")


def test_a_valid_conversation_is_not_changed() -> None:
    sound = (
        user("hello"),
        Message("assistant", (Thinking("hm", "p", "m"), Text("I look."), call("a"), call("b"))),
        Message("tool", (ToolResult("a", "A"), ToolResult("b", ""))),
        Message("assistant", (Text("done"),)),
    )
    assert repair(sound) == sound


def test_a_missing_result_is_marked_as_missing() -> None:
    repaired = repair(
        (user("x"), Message("assistant", (call("a"), call("b"))), Message("tool", (ToolResult("b", "B"),)))
    )
    assert repaired[-1].parts == (ToolResult("a", LOST_RESULT, is_error=True), ToolResult("b", "B"))


def test_a_result_without_a_call_is_dropped() -> None:
    assert repair((user("x"), Message("tool", (ToolResult("a", "A"),)))) == (user("x"),)


def test_results_are_sorted_in_the_order_of_their_calls() -> None:
    swapped = Message("tool", (ToolResult("b", "B"), ToolResult("a", "A")))
    repaired = repair((user("x"), Message("assistant", (call("a"), call("b"))), swapped))
    assert repaired[-1].parts == (ToolResult("a", "A"), ToolResult("b", "B"))


def test_two_calls_with_one_id_keep_their_own_results() -> None:
    both = Message("tool", (ToolResult("a", "first"), ToolResult("a", "second")))
    repaired = repair((user("x"), Message("assistant", (call("a"), call("a"))), both))
    assert [use.call_id for use in repaired[1].calls] == ["a", "a_2"]
    assert repaired[2].parts == (ToolResult("a", "first"), ToolResult("a_2", "second"))


def test_a_generated_id_is_unique() -> None:
    unique = make_call_ids_unique((call("a"), call("a")), {"a_2"}.__contains__, prefix="call_1")
    assert [part.call_id for part in unique if isinstance(part, ToolUse)] == ["a", "a_3"]


def test_calls_that_share_an_id_across_turns_are_distinguished() -> None:
    turn = (Message("assistant", (call("a"),)), Message("tool", (ToolResult("a", "A"),)))
    repaired = repair((user("x"), *turn, *turn))
    assert [use.call_id for message in repaired for use in message.calls] == ["a", "a_2"]


def test_a_conversation_that_starts_with_the_assistant_gets_a_user_message() -> None:
    assert [message.role for message in repair((Message("assistant", (Text("hi"),)),))] == ["user", "assistant"]
