"""Every entry of the table of limits has a test, here or in a module that is named below."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.fake_endpoint import FakeEndpoint, says
from tests.limits.replies import chat_text, event, read_reply, request
from tests.models.chat import failed
from treadle.api.engine import create_engine
from treadle.config.home import Home
from treadle.core.context.transcript import make_call_ids_unique
from treadle.domain import events as e
from treadle.domain.attachments import check_attached_parts, measure_base64
from treadle.domain.errors import InvalidState, SizeLimitExceeded
from treadle.domain.json_text import ObjectProgress, is_too_deep
from treadle.domain.limits import LIMITS, MAX_JSON_DEPTH
from treadle.domain.messages import Image, Text, ToolUse, user
from treadle.domain.models import Profile
from treadle.domain.runs import Usage
from treadle.engine.guarded_model import limit_reply
from treadle.engine.tool_results import limit_result
from treadle.models.formats.chat_calls import ChatCalls
from treadle.models.formats.chat_chunks import Fragment, Function, read_usage
from treadle.models.http import client
from treadle.models.http.surrogates import decode_json
from treadle.models.http.wire import UnusableReply, normalize_object
from treadle.ports.model import Completed, TextDelta
from treadle.ports.tool import Observation

DEEP = '{"a":' * 900 + "1" + "}" * 900
TESTED_IN: dict[str, str] = {
    "reply_event_bytes": "tests/models/test_sse.py",
    "reply_parts": "tests/limits/test_floods.py",
    "calls": "tests/limits/test_floods.py",
    "mcp_message_bytes": "tests/e2e/test_mcp_faults.py",
    "mcp_noise_bytes": "tests/e2e/test_mcp_faults.py",
    "mcp_unasked_messages": "tests/limits/test_mcp_messages.py",
    "mcp_tools": "tests/limits/test_mcp_messages.py",
    "mcp_pages": "tests/limits/test_mcp_messages.py",
    "mcp_cursor": "tests/limits/test_mcp_messages.py",
    "mcp_tool_bytes": "tests/limits/test_mcp_messages.py",
    "mcp_depth": "tests/limits/test_mcp_messages.py",
    "mcp_blocks": "tests/limits/test_mcp_messages.py",
    "mcp_images": "tests/limits/test_mcp_messages.py",
    "mcp_image_bytes": "tests/limits/test_mcp_messages.py",
    "mcp_fields": "tests/limits/test_mcp_messages.py",
    "mcp_texts": "tests/limits/test_mcp_messages.py",
    "mcp_title": "tests/limits/test_mcp_messages.py",
    "client_tools": "tests/engine/test_client_tools.py",
    "client_tool_bytes": "tests/engine/test_client_tools.py",
    "stream_memory_bytes": "tests/limits/test_stream_memory.py",
}
"""Limit -> the module with its test. All others are tested below."""


def check_reply_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_REPLY_BYTES", 1000)
    from tests.fake_endpoint import Answer

    assert "it is larger than" in failed(Answer([chat_text("x" * 5000)])).message


def check_reply_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_REPLY_CHARACTERS", 1000)
    shown: list[Any] = []
    size = client.ReplySize(shown.append)
    size.show(TextDelta("x" * 1000))
    with pytest.raises(UnusableReply, match="longer than"):
        size.show(TextDelta("x"))
    assert len(shown) == 1


def check_call_name(_: pytest.MonkeyPatch) -> None:
    whole = Completed((ToolUse("c", "n" * 1_000_000, "{}"),), "tool_use", Usage(1, 1))
    [call] = limit_reply(whole, 128).parts
    assert isinstance(call, ToolUse)
    assert len(call.name) == 256


def check_call_id(_: pytest.MonkeyPatch) -> None:
    [call] = make_call_ids_unique((ToolUse("i" * 300, "n", "{}"),), lambda _: False, "call_1")
    assert isinstance(call, ToolUse)
    assert call.call_id == "call_1_0"


def check_call_name_pieces(_: pytest.MonkeyPatch) -> None:
    """A server that repeats the name in every fragment costs no more than one that sends it once."""
    calls = ChatCalls({"add"})
    for piece in ("{", *['"a"'] * 5000):
        calls.add(Fragment(0, "c", Function("add", piece)))
    assert calls.names == ("add",)


def check_written_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    call = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    asked = request(profile=Profile(call_dialect="hermes"))
    read = read_reply("chat_completions", chat_text(call + " " * 1_000_001 + call), asked)
    assert [type(part) for part in read.whole.parts] == [Text]


def check_reported_tokens(_: pytest.MonkeyPatch) -> None:
    for count in (-1, 10**9, 10**30, 1e999, float("nan"), "1e400", "9" * 5000):
        assert read_usage({"prompt_tokens": count, "completion_tokens": 7}) == Usage(0, 7)
    whole = limit_reply(Completed((), "end_turn", Usage(-5, 10**15, 3)), 128)
    assert whole.usage == Usage(0, 0, 3, estimated=True)


def check_json_depth(_: pytest.MonkeyPatch) -> None:
    assert is_too_deep(DEEP)
    assert not is_too_deep(json.dumps({"a": "{" * 5000}))
    assert normalize_object(DEEP) == DEEP, "the call fails later, with a message for the model"
    assert normalize_object(DEEP[:-1]) is None, "it is cut off"


def check_result_characters(_: pytest.MonkeyPatch) -> None:
    limited = limit_result(Observation("x" * 16_000_010))
    assert limited.content.endswith("[… 10 more characters were dropped …]")


def check_result_images(_: pytest.MonkeyPatch) -> None:
    limited = limit_result(Observation("x", images=(Image("image/png", "AAAA"),) * 20))
    assert (len(limited.images), limited.content) == (16, "x\n[… 4 more images were dropped …]")


def check_attachment_bytes(_: pytest.MonkeyPatch) -> None:
    with pytest.raises(SizeLimitExceeded, match=r"limits\.max_attachment_bytes"):
        check_attached_parts((Image("image/png", "A" * 400),), 299)
    check_attached_parts((Image("image/png", "A" * 400),), 300)
    assert measure_base64("QUI=") == 2


CHECKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "reply_bytes": check_reply_bytes,
    "reply_characters": check_reply_characters,
    "call_name": check_call_name,
    "call_id": check_call_id,
    "call_name_pieces": check_call_name_pieces,
    "written_calls": check_written_calls,
    "reported_tokens": check_reported_tokens,
    "json_depth": check_json_depth,
    "result_characters": check_result_characters,
    "result_images": check_result_images,
    "attachment_bytes": check_attachment_bytes,
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_limit_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CHECKS[name](monkeypatch)


def test_every_limit_of_the_table_has_a_test() -> None:
    assert {limit.name for limit in LIMITS} == {*CHECKS, *TESTED_IN}
    for name, module in TESTED_IN.items():
        assert Path(module).is_file(), name


# ── Depth and numbers ──────────────────────────────────────────────────────────────────────────────


async def test_arguments_that_are_nested_too_deeply_fail_at_once_and_the_model_is_told(tmp_path: Path) -> None:
    from treadle.testing.models import ScriptedModel, ask, say

    @treadle.tool
    def add(a: dict[str, Any]) -> str:
        """Add."""
        return "never"

    async def run() -> list[Any]:
        engine = treadle.Engine(f"sqlite:///{tmp_path / 'x.db'}")
        engine.add_model("scripted", ScriptedModel(ask(ToolUse("c", "add", DEEP)), say("Done.")))
        async with engine:
            result = await engine.run(treadle.Agent(name="a", model="scripted/x", tools=[add]), "Go.")
            return [each.data async for each in engine.events(result.run_id)]

    [error] = [data for data in await run() if isinstance(data, e.ToolCallError)]
    assert error.kind == "invalid_arguments"
    assert f"nested more than {MAX_JSON_DEPTH} levels deep" in error.content


def test_an_event_that_is_nested_too_deeply_is_a_clear_failure() -> None:
    from tests.fake_endpoint import Answer

    payload = b'data: {"choices": [], "usage": ' + b"[" * 5000 + b"]" * 5000 + b"}\n\n"
    assert "nested too deeply" in failed(Answer([payload])).message


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "9" * 5000])
def test_a_number_that_no_json_has_is_not_passed_on(number: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_json('{"a": "\\ud800", "b": ' + number + "}")
    assert normalize_object('{"b": ' + number + "}") is None


@pytest.mark.parametrize("text", ['{"a": "}{\\"}"}', '{"a": {"b": [1, {}]}}', '{"\\\\": 1}', "{}"])
def test_the_end_of_an_object_is_found_wherever_its_pieces_end(text: str) -> None:
    for size in range(1, len(text) + 1):
        progress = ObjectProgress()
        ends: list[int] = []
        for at in range(0, len(text), size):
            progress.add(text[at : at + size])
            if progress.has_ended:
                ends.append(at + size)
        assert ends, size
        assert ends[0] >= len(text), size


def test_huge_indexes_and_counts_do_not_break_a_stream() -> None:
    call = {"index": 10**40, "id": "c", "function": {"name": "add", "arguments": "{}"}}
    choice = {"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    chunk = json.dumps({"choices": [choice], "usage": {"prompt_tokens": -3}}).encode()
    text = event(choices=[{"delta": {"content": "x"}}])
    body = text + b"data: " + chunk + b"\n\ndata: [DONE]\n\n"
    read = read_reply("chat_completions", body)
    assert [type(part) for part in read.whole.parts] == [Text, ToolUse]
    assert read.whole.usage.estimated


async def test_a_message_to_a_run_has_the_attachment_limit_of_its_agent(tmp_path: Path) -> None:
    async with FakeEndpoint(says("Done.")) as endpoint:
        home = Home(tmp_path / "home")
        home.ensure()
        providers = f"{{providers: {{fake: {{base_url: '{endpoint.url}', api_key: x}}}}}}"
        (home.path / "config.yaml").write_text(providers)
        async with create_engine(home=home) as engine:
            agent = treadle.Agent(name="a", model="fake/m", limits={"max_attachment_bytes": 300})
            run_id = (await engine.run(agent, "Go.")).run_id
            service = engine.context.service
            with pytest.raises(SizeLimitExceeded, match="has 303 bytes: at most 300"):
                await service.steer(run_id, user("Look.", Image("image/png", "A" * 404)))
            with pytest.raises(InvalidState):  # the size is right, but the run has ended
                await service.steer(run_id, user("Look.", Image("image/png", "A" * 400)))
