"""Calls in the shapes that servers send them in, and calls that are written into the text of a reply."""

from typing import Any

import pytest

from tests.fake_endpoint import DONE, Answer, delta, event, fragment
from tests.models.chat import ADD, HELLO, broken, completed, converse, events_of
from treadle.domain.control_tokens import may_hold_call
from treadle.domain.messages import CallExtra, Text, ToolUse
from treadle.domain.models import CallDialect, Profile
from treadle.domain.written_calls import find_written_call
from treadle.models.formats.chat_calls import join_name
from treadle.ports.model import Completed, ModelRequest, Preamble, TextDelta

END = (delta(finish="tool_calls"), DONE)


@pytest.mark.parametrize(
    ("pieces", "name"),
    [
        (["get_", "weather"], "get_weather"),
        (["get", "_", "weather"], "get_weather"),
        (["add"], "add"),
        (["add", "add"], "add"),
        (["ad", "add"], "add"),
        (["un", "known"], "unknown"),
        (["unknown", "unknown"], "unknown"),
        ([], ""),
    ],
)
def test_a_name_in_pieces_is_joined_and_one_that_is_repeated_is_not(pieces: list[str], name: str) -> None:
    assert join_name(pieces, {"add", "get_weather"}) == name


def test_a_call_whose_name_comes_in_pieces_is_read() -> None:
    pieces = [fragment(0, "c", "ad"), fragment(0, None, "d"), fragment(0, None, None, '{"a": 1}')]
    assert completed(*(delta(tool_calls=[piece]) for piece in pieces), *END).parts == (
        ToolUse("c", "add", '{"a": 1}'),
    )


def test_calls_without_ids_are_separated_by_their_names() -> None:
    pieces = [
        fragment(0, None, "add"), fragment(0, None, None, '{"a": 1}'),
        fragment(0, None, "now"), fragment(0, None, None, "{}"),
    ]  # fmt: skip
    uses = completed(*(delta(tool_calls=[piece]) for piece in pieces), *END).parts
    assert uses == (ToolUse("", "add", '{"a": 1}'), ToolUse("", "now", "{}"))


def test_a_legacy_function_call_is_read() -> None:
    pieces = [delta(function_call={"name": "add", "arguments": ""}), delta(function_call={"arguments": '{"a": 1}'})]
    last = completed(*pieces, delta(finish="function_call"), DONE)
    assert (last.parts, last.stop) == ((ToolUse("", "add", '{"a": 1}'),), "tool_use")
    whole = {
        "choices": [{"message": {"function_call": {"name": "add", "arguments": "{}"}}, "finish_reason": "stop"}]
    }
    assert completed(event(whole), DONE).parts == (ToolUse("", "add", "{}"),)


@pytest.mark.parametrize("arguments", ["", "null", " null ", '""', None])
def test_no_arguments_are_an_empty_object(arguments: str | None) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "now", "arguments": arguments}}
    assert completed(delta(tool_calls=[call]), *END).parts == (ToolUse("c", "now", "{}"),)


def test_an_empty_fragment_is_not_a_call() -> None:
    assert completed(delta(tool_calls=[fragment(0, "c", "now")]), delta(tool_calls=[{"index": 1}]), *END).parts == (
        ToolUse("c", "now", "{}"),
    )


def test_a_second_choice_is_ignored() -> None:
    other = {
        "index": 1,
        "delta": {"content": "B", "tool_calls": [fragment(0, "x", "now")]},
        "finish_reason": "length",
    }
    both = event({"choices": [{"index": 0, "delta": {"content": "A"}}, other]})
    alone = event({"choices": [other]})
    last = completed(both, alone, delta(content="C", finish="stop"), DONE)
    assert (last.parts, last.stop) == ((Text("AC"),), "end_turn")


def test_extra_content_is_kept_with_its_call() -> None:
    call = fragment(0, "c", "now") | {"extra_content": {"google": {"thought_signature": "s"}}}
    [use] = completed(delta(tool_calls=[call]), *END).parts
    assert use == ToolUse("c", "now", "{}", CallExtra("fake", "m-1", '{"google":{"thought_signature":"s"}}'))


@pytest.mark.parametrize(
    "counted",
    [
        {"prompt_tokens": "12", "completion_tokens": "3"},
        {"prompt_tokens": 12.0, "completion_tokens": 3.2},
        {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": "none"},
    ],
)
def test_usage_in_odd_number_formats_is_read(counted: Any) -> None:
    last = completed(delta(content="x", finish="stop"), event({"choices": [], "usage": counted}), DONE)
    assert (last.usage.input_tokens, last.usage.output_tokens, last.usage.estimated) == (12, 3, False)


@pytest.mark.parametrize(
    "counted", [{"prompt_tokens": -5, "completion_tokens": -1}, "many", [1], {"prompt_tokens": True}]
)
def test_usage_that_says_nothing_is_estimated(counted: Any) -> None:
    last = completed(delta(content="x", finish="stop"), event({"choices": [], "usage": counted}), DONE)
    assert last.usage.estimated


def test_keepalives_and_a_byte_order_mark_are_skipped() -> None:
    pieces = [b"\xef", b"\xbb\xbf", b": OPENROUTER PROCESSING\n\n", b"data: \n\n", b"data:\n\n", b"data: {}\n\n"]
    assert completed(
        *pieces, delta(content="x"), b"event: ping\ndata: {}\n\n", delta(finish="stop"), DONE
    ).parts == (Text("x"),)


# ── Calls in the text ──────────────────────────────────────────────────────────────────────────────

BAR, LOW = "\uff5c", "\u2581"
WRITTEN: dict[CallDialect, tuple[str, ...]] = {
    "hermes": (
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    ),
    "deepseek": (
        f"<{BAR}tool{LOW}calls{LOW}begin{BAR}><{BAR}tool{LOW}call{LOW}begin{BAR}>function<{BAR}tool{LOW}sep{BAR}>add\n"
        f'```json\n{{"a": 1}}\n```<{BAR}tool{LOW}call{LOW}end{BAR}><{BAR}tool{LOW}calls{LOW}end{BAR}>',
        f"<{BAR}tool{LOW}calls{LOW}begin{BAR}><{BAR}tool{LOW}call{LOW}begin{BAR}>add<{BAR}tool{LOW}sep{BAR}>"
        f'{{"a": 1}}<{BAR}tool{LOW}call{LOW}end{BAR}><{BAR}tool{LOW}calls{LOW}end{BAR}>',
        f'<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="add">\n<{BAR}DSML{BAR}parameter name="a" '
        f'string="false">1</{BAR}DSML{BAR}parameter>\n</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>'
        f"<{BAR}end{LOW}of{LOW}sentence{BAR}>",
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    "llama": (
        '<|python_tag|>{"name": "add", "parameters": {"a": 1}}<|eom_id|>',
        '{"name": "add", "parameters": {"a": 1}}',
        '<function=add>{"a": 1}</function>',
    ),
    "mistral": ('[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]', '[TOOL_CALLS]add[ARGS]{"a": 1}'),
}
EACH = [(dialect, text) for dialect, texts in WRITTEN.items() for text in texts]


@pytest.mark.parametrize(("dialect", "text"), EACH)
def test_a_written_call_is_recognised(dialect: CallDialect, text: str) -> None:
    assert find_written_call(text, {"add"}) is not None
    assert may_hold_call(text)
    if not text.startswith("{"):
        assert find_written_call(f"Let me see.\n{text}", {"add"}) is not None
        assert find_written_call(text[: len(text) * 2 // 3], {"add"}) is not None, "also one that was cut"


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "add", "arguments": {}}\n```',
        '[{"name": "add", "arguments": "{}"}]',
        '{"type": "function", "function": {"name": "add", "arguments": {}}}',
        '{"tool_calls": [{"function": {"name": "add", "arguments": "{}"}}]}',
        "[add(a=1)]",
        "add(a=1)",
        '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">1</parameter>',
        '<function_calls><invoke name="add">',
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}",
        f'<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="add">',
        "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "Done.<|im_end|>\n<|im_start|>user\nmore",
        "<tool_call>",
        "[TOOL_CALLS]",
        '{"name": "add", "arguments": {"a": 1}}\n</tool_call>',  # the opening token was removed
        "</tool_call>",
        "I add.\n</parameter>\n</invoke>",
        '{"name":"add","parameters":{"a":1}}; {"name":"add","parameters":{"a":2}}',
        '{"name":"add","parameters":{"a":1}}\n{"name":"add","parameters":{"a":2}}',
        '{"name":"add","parameters":{"a":1}}<|eom_id|>',
        '{"name": "add", "arguments": {"a": ',
        'I will add.\n{"name": "add", "parameters": {"a": 1}}',
        'I will add.\n[{"name": "add", "arguments": {"a": 1}}]</s>',
        "{'name': 'add', 'arguments': {'a': 1}}",
        '<function(add)>{"a": 1}</function>',
        'add[ARGS]{"a": 1}',
        "[TOOL_CALLS] add",
        'functions.add:0{"a": 1}',
        'add:0<|tool_call_argument_begin|>{"a": 1}<|tool_calls_section_end|>',
        "<|tool_calls_section_end|>",
        'Sure. <|python_start|>{"name": "add", "parameters": {"a": 1}}<|python_end|>',
        '<|open|>toolscall tool="add" index="1"<|sep|><|open|>argument key="a" type="string"<|sep|>1<|close|>',
        "<|start|>assistant<|channel|>commentary to=functions.add<|message|>{}",
        'assistantcommentary to=functions.add json{"a": 1}',
        '<tool_calls>[{"name": "add", "arguments": {}}]',
        '<TOOLCALL>[{"name": "add", "arguments": {}}]</TOOLCALL>',
        'functools[{"name": "add", "arguments": {}}]',
        "<start_function_call>call:add{a:1}<end_function_call>",
        "```tool_code\nprint(add(a=1))\n```",
        "Let me add.\n```tool_code\nprint(default_api.add(a=1))\n```",
        "<|eos|>",
        "<|im_end|>",
        "<|eot_id|>\n<|eot_id|>",
        "</s>",
        "[INST]",
        f"<{BAR}end{LOW}of{LOW}sentence{BAR}>",
        "<|whatever_comes_next|>",
    ],
)
def test_a_call_written_as_code_or_json_is_recognised(text: str) -> None:
    assert find_written_call(text, {"add"}) is not None
    assert may_hold_call(text)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 42.",
        "Hermes models write `<tool_call>{...}</tool_call>` in their text.",
        'Like this:\n```\n<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>\n```\nThat is all.',
        "Llama marks code with <|python_tag|> in its own template.",
        "Mistral begins with [TOOL_CALLS] and goes on.",
        '{"name": "Ada", "age": 36}',
        '{"name": "add"}',
        '[{"name": "multiply", "arguments": {}}]',
        "Call add(a=1) to add.",
        "print(1)",
        "a <b> c </b> [1] {2}",
        "Use <tool_call> tags for that.",
        "Close it with </tool_call>",
        "ChatML ends a turn with <|im_end|> and starts one with <|im_start|> again.",
        "The tokens are:\n```\n<|im_end|>\n<|eot_id|>\n```",
        "It ends with `<|im_end|>`",
        'You send this:\n\n```json\n{"name": "add", "arguments": {"a": 1}}\n```\n\nThen wait.',
        'You send this:\n```json\n{"name": "add", "arguments": {"a": 1}}\n```',
        'You would send\n{"name": "add", "arguments": {"a": 1}}\nand wait for the result.',
        'The entry is\n{"name": "add", "type": "module", "version": 2}',
        'The tool is\n{"name": "multiply", "arguments": {"a": 1}}',
        "Python:\n```python\nadd(a=1)\n```",
        "I mailed the summary to=functions.other.",
        "<p>Old price: <s>12</s></p>",
        "See functions.adder: it adds.",
        '{"functions": {"add": 1}}',
    ],
)
def test_an_answer_that_quotes_or_resembles_a_call_is_an_answer(text: str) -> None:
    assert find_written_call(text, {"add"}) is None


@pytest.mark.parametrize(("dialect", "text"), EACH)
def test_calls_written_in_the_dialect_of_the_profile_are_read(dialect: CallDialect, text: str) -> None:
    request = ModelRequest(
        "m-1",
        Preamble("", (ADD,)),
        HELLO.conversation,
        HELLO.settings,
        provider="fake",
        profile=Profile(call_dialect=dialect),
    )
    before = "" if text.startswith("{") else "Let me see. "
    pieces = [delta(content=(before + text)[place : place + 5]) for place in range(0, len(before + text), 5)]
    [*shown, last] = converse(Answer([*pieces, delta(finish="stop"), DONE]), requests=[request]).replies[0]
    assert isinstance(last, Completed)
    *said, use = last.parts
    assert isinstance(use, ToolUse)
    assert (use.name, use.arguments, last.stop) == ("add", '{"a":1}', "tool_use")
    assert said == ([Text("Let me see.")] if before else [])
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)).strip() == before.strip()
    cut = converse(Answer([*pieces, delta(finish="length"), DONE]), requests=[request]).replies[0][-1]
    assert isinstance(cut, Completed)
    assert not any(isinstance(part, ToolUse) for part in cut.parts)


@pytest.mark.parametrize(
    "text", ['<tool_call>{"name": "add", "argu', '<tool_call>{"name": "no", "arguments": {}}</tool_call>']
)
def test_an_incomplete_or_unknown_call_stays_text(text: str) -> None:
    profile = Profile(call_dialect="hermes")
    request = ModelRequest("m-1", Preamble("", (ADD,)), HELLO.conversation, HELLO.settings, profile=profile)
    last = converse(Answer([delta(content=text, finish="stop"), DONE]), requests=[request]).replies[0][-1]
    assert isinstance(last, Completed)
    assert last.parts == (Text(text),)


def test_without_a_dialect_a_written_call_is_text() -> None:
    [*_, last] = events_of(Answer([delta(content=WRITTEN["hermes"][0], finish="stop"), DONE]))
    assert isinstance(last, Completed)
    assert last.parts == (Text(WRITTEN["hermes"][0]),)


def test_arguments_that_are_cut_are_never_a_call() -> None:
    assert "not a JSON object" in broken(delta(tool_calls=[fragment(0, "c", "add", '{"a": ')]), *END).message
