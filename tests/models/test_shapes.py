"""Faults of real providers, end to end: each goes through a loopback server and the whole engine, and the session
answers the next healthy message. `shapes/README.md` says what a shape is."""

import asyncio
import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

import treadle
from tests import anthropic_wire, responses_wire
from tests.engine.running import journal, until
from tests.fake_endpoint import Answer, Behaviour, FakeEndpoint, Raw, Request, says
from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.events import LlmError, LlmResponse, RunEnd, RunWaiting
from treadle.domain.messages import ToolUse
from treadle.domain.providers import ApiMode

FOLDER = Path(__file__).parent / "shapes"
LEAST = 250
AT_ONCE = 24
MODES: Mapping[str, ApiMode] = {
    "chat": "chat_completions",
    "anthropic": "anthropic_messages",
    "responses": "responses",
}
OUTCOMES = {
    None: "completed",
    "overflow": "context_overflow",
    "billing": "model_error",
    "auth": "model_error",
    "not_found": "model_error",
    "invalid_request": "model_error",
}
"""Of the run, by the kind of the failure; others are tried again, and succeed."""
LONGEST_WAIT = 3600.0
SHORT = 0.5
"""Seconds: a shorter wait passes while the test runs."""


class Shape(Struct, forbid_unknown_fields=True):
    id: str
    formats: list[str]
    source: str
    status: int | None = None
    headers: dict[str, str] = {}
    body: str | None = None
    message: str | None = None
    type: str | None = None
    code: str | None = None
    events: list[str] | None = None
    reply: str | None = None
    raw: str | None = None
    cut: bool = False
    drop: bool = False
    times: int = 1
    max_tokens: int | None = None
    kind: str | None = None
    outcome: str | None = None
    wait: float | None = None
    text: str | None = None
    calls: list[str] | None = None
    longest_reply: int | None = None

    @property
    def is_parked(self) -> bool:
        """Whether the run waits for the provider when the next message comes."""
        return self.wait is not None and SHORT < self.wait <= LONGEST_WAIT

    @property
    def slack(self) -> float:
        """Seconds by which a wait until a moment may be shorter when it is read."""
        is_moment = any(
            "{" in text for text in (*self.headers.values(), (self.body or "").lower().partition("reset")[2])
        )
        return 30.0 if is_moment else 0.001

    @property
    def ends(self) -> str:
        """How the run ends that meets it."""
        if self.wait is not None and self.wait > LONGEST_WAIT:
            return "model_error"
        return self.outcome or OUTCOMES.get(self.kind, "completed")


def read(folder: Path) -> list[Shape]:
    found: list[Shape] = []
    for path in sorted(folder.glob("*.toml")):
        found += msgspec.convert(tomllib.loads(path.read_text("utf-8"))["shape"], list[Shape])
    return found


SHAPES = read(FOLDER)


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


# ── The server ─────────────────────────────────────────────────────────────────────────────────────


def healthy(form: str, text: str = "fine") -> Answer:
    match form:
        case "anthropic":
            return anthropic_wire.says(text)
        case "responses":
            return Answer(responses_wire.wire(*responses_wire.replied(responses_wire.message(text))))
        case _:
            return says(text)


def behaviour(form: str, shape: Shape) -> Behaviour:
    """The answer that a shape describes."""
    if shape.reply is not None:
        return healthy(form, shape.reply)
    raw = (shape.raw or "").encode()
    if shape.drop:
        return Raw(raw)
    if shape.events is not None:
        pieces = [f"data: {event}\n\n".encode() for event in shape.events]
        return Answer(pieces, shape.status or 200, ending="cut" if shape.cut else "clean")
    headers = {"Content-Type": "application/json"} | {name: moments(text) for name, text in shape.headers.items()}
    if shape.body is not None:
        raw = moments(shape.body).encode()
    elif shape.message is not None:
        error = {"message": shape.message, "type": shape.type, "code": shape.code}
        raw = json.dumps({"error": error}).encode()
    return Answer([raw] if raw else [], shape.status or 400, headers, framing="length")


def moments(text: str) -> str:
    """Fill in moments that lie ahead: `{iso+42}`, `{epoch+42}`, `{epochms+42}`, `{http+42}`."""
    for name in ("iso", "epoch", "epochms", "http"):
        while (start := text.find(f"{{{name}+")) >= 0:
            end = text.index("}", start)
            moment = datetime.now(UTC) + timedelta(seconds=float(text[start + len(name) + 2 : end]))
            match name:
                case "iso":
                    said = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
                case "http":
                    said = format_datetime(moment, usegmt=True)
                case _:
                    said = str(int(moment.timestamp() * (1000 if name == "epochms" else 1)))
            text = text[:start] + said + text[end + 1 :]
    return text


class Server:
    """Answers each model id with its shape, and then well."""

    def __init__(self, form: str, shapes: Sequence[Shape]) -> None:
        self._form = form
        self._left = {shape.id: shape.times for shape in shapes}
        self._shapes = {shape.id: shape for shape in shapes}
        self.asked: dict[str, list[Any]] = {shape.id: [] for shape in shapes}

    def __call__(self, request: Request) -> Behaviour:
        sent = request.json
        model = sent["model"]
        self.asked[model].append(sent)
        if self._left[model] > 0:
            self._left[model] -= 1
            return behaviour(self._form, self._shapes[model])
        return healthy(self._form)


# ── One shape ──────────────────────────────────────────────────────────────────────────────────────


async def meets(engine: HostedEngine, form: str, shape: Shape, server: Server) -> list[str]:
    """What is wrong with how a session takes a shape; nothing, if all is well."""
    hero = treadle.Agent(
        name=shape.id.replace("_", "-")[:60],
        model=f"{form}/{shape.id}",
        tools=[look],
        retry={"attempts": 3, "base_ms": 0},
        model_settings={"max_tokens": shape.max_tokens},
        memory={"recall": 0, "remember": False},
    )
    session = f"{form}-{shape.id}"
    run_id = await engine.submit(hero, "hello", session=session)
    last = await until(engine, run_id, "run_end", "run_waiting")
    if isinstance(last.data, RunWaiting) and not shape.is_parked:
        last = await until(engine, run_id, "run_end")
    next_ = await engine.run(hero, "and now?", session=session)
    events = [event.data for event in await journal(engine, run_id)]
    wrong = [*failure_of(shape, events), *end_of(shape, last.data, events, server.asked[shape.id])]
    if (next_.outcome, next_.text) != ("completed", "fine"):
        wrong.append(f"the next message ends {next_.outcome}: {next_.reason or next_.text}")
    return [f"{session}: {each}" for each in wrong]


def failure_of(shape: Shape, events: Sequence[Any]) -> list[str]:
    """What is wrong with the failure on record."""
    failures = [data for data in events if isinstance(data, LlmError)]
    if shape.kind is None:
        return [f"a failure: {failures[0].kind}: {failures[0].message}"] if failures else []
    if not failures:
        return ["no failure"]
    wrong, failed = list[str](), failures[0]
    if failed.kind != shape.kind:
        wrong.append(f"{failed.kind}, not {shape.kind}: {failed.message}")
    if shape.wait is None and failed.asked_wait is not None and failed.asked_wait > SHORT and failed.retryable:
        wrong.append(f"waits {failed.asked_wait} s")
    if shape.wait is not None and abs((failed.asked_wait or 0) - shape.wait) > shape.slack:
        wrong.append(f"waits {failed.asked_wait} s, not {shape.wait} s")
    if shape.kind == "overflow" and not ("/compact" in failed.message and "/reset" in failed.message):
        wrong.append(f"does not name /compact and /reset: {failed.message}")
    if "etrying" in failed.message or "tries again" in failed.message:
        wrong.append(f"promises a retry: {failed.message}")
    return wrong


def end_of(shape: Shape, last: Any, events: Sequence[Any], asked: Sequence[Any]) -> list[str]:
    """What is wrong with how the run ends, or waits."""
    wrong = list[str]()
    if shape.is_parked:
        if not (isinstance(last, RunWaiting) and last.reason == "retry" and last.wake_at and " UTC" in last.detail):
            wrong.append(f"is not parked: {last}")
        return wrong
    assert isinstance(last, RunEnd)
    if last.outcome != shape.ends:
        wrong.append(f"ends {last.outcome}, not {shape.ends}: {last.reason}")
    if shape.wait is not None and shape.wait > LONGEST_WAIT and "It asks to wait" not in last.reason:
        wrong.append(f"does not give the time: {last.reason}")
    if shape.ends == "completed" and last.text != (shape.text or "fine"):
        wrong.append(f"answers {last.text!r}")
    called = [
        part.name
        for data in events
        if isinstance(data, LlmResponse)
        for part in data.parts
        if isinstance(part, ToolUse)
    ]
    if called != (shape.calls or []):
        wrong.append(f"calls {called}")
    if shape.longest_reply is not None:
        bounds = [each.get("max_tokens") or each.get("max_output_tokens") for each in asked[:2]]
        if bounds != [shape.max_tokens, shape.longest_reply]:
            wrong.append(f"asks for replies of {bounds}")
    return wrong


# ── All of them ────────────────────────────────────────────────────────────────────────────────────


async def find_faults_of_form(form: str, tmp_path: Path) -> list[str]:
    shapes = [shape for shape in SHAPES if form in shape.formats]
    server, places = Server(form, shapes), asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(HANG_SECONDS))
        endpoint = await stack.enter_async_context(FakeEndpoint(policy=server))
        engine = create_engine("sqlite:///:memory:", home=Home(tmp_path / "home"))
        engine.add_provider(form, base_url=endpoint.url, api_mode=MODES[form], api_key="sk-shape-1234")
        await stack.enter_async_context(engine)

        async def one(shape: Shape) -> list[str]:
            async with places:
                return await meets(engine, form, shape, server)

        found = await asyncio.gather(*(one(shape) for shape in shapes))
    return [each for wrong in found for each in wrong]


@pytest.mark.parametrize("form", sorted(MODES))
async def test_every_odd_reply_is_handled_and_the_session_continues(form: str, tmp_path: Path) -> None:
    wrong = await find_faults_of_form(form, tmp_path)
    assert not wrong, "\n" + "\n".join(wrong)


def test_there_are_enough_shapes_each_with_its_source() -> None:
    assert sum(len(shape.formats) for shape in SHAPES) >= LEAST
    ids = [shape.id for shape in SHAPES]
    assert len(set(ids)) == len(ids)
    assert all(set(shape.formats) <= set(MODES) for shape in SHAPES)
    unsourced = [shape.id for shape in SHAPES if "://" not in shape.source and "RFC " not in shape.source]
    assert not unsourced, "a source is an address or an RFC"
