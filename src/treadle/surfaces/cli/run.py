"""`treadle run`: one message, one run, streamed to the terminal."""

import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from treadle.api.agent import apply_options
from treadle.api.engine import Engine, create_engine
from treadle.bootstrap.stores import ONLY_OWN
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import SizeLimitExceeded, UsageError
from treadle.domain.events import Decision
from treadle.domain.ids import SessionId
from treadle.domain.messages import user
from treadle.domain.permissions import Asker
from treadle.operations import runs
from treadle.operations.local_admin import SUBMIT, SubmitWhole
from treadle.operations.operation import Caller
from treadle.operations.submissions import MESSAGE_LIMIT, Submission
from treadle.surfaces.cli.approval_prompt import Asking
from treadle.surfaces.cli.connection import reached
from treadle.surfaces.cli.event_output import JsonLines, Printer, Transcript, note
from treadle.surfaces.cli.line_input import Prompt
from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.run_view import Following, unfinished_runs
from treadle.surfaces.cli.wait_hint import endpoint_option

_MOST_BYTES = 4 * MESSAGE_LIMIT + 1  # of standard input: more cannot be a message


class Request(Struct, frozen=True):
    """What was asked for on the command line."""

    message: str
    agent: str
    model: str | None = None
    base_url: str | None = None
    session: str | None = None
    json: bool = False
    decision: Decision | None = None
    """The answer to every approval, given beforehand."""


def run(request: Request) -> Coroutine[Any, Any, int]:
    # Standard input is read before there is an event loop: Ctrl-C would not get through to a loop that is blocked.
    return _run(request, read_message(request.message))


async def _run(request: Request, message: str) -> int:
    home = Home.from_environment(os.environ)
    agent = _agent(home, request)
    engine = create_engine(home=home, share=ONLY_OWN)
    options = endpoint_option(request.base_url)
    if request.base_url is not None:
        agent = msgspec.structs.replace(agent, provider=add_endpoint(engine, request.base_url))
    engine.models.local.notice = note
    with Stop() as stop:
        async with reached(engine, home, request.base_url) as home_of:
            client, out, prompt = home_of.client, printer(request.json), prompt_for(stop, request.json)
            asking = Asking(client, home, out, prompt, request.decision)
            following = Following(home_of, out, stop, asking, options)
            await following.announce()
            if stop.asked.is_set():
                return stop.exit_code
            known = {run.run_id: run.sequence for run in await unfinished_runs(client)}
            if request.session and not await _is_known(client, request.session):
                out.note(f"a new session {request.session} begins")
            submission = Submission(
                agent if agent.workspace is not None else apply_options(agent, {"workspace": Path.cwd()}),
                user(message),
                SessionId(request.session) if request.session else None,
                asker=asker_of(prompt, request.decision),
            )
            ticket = await client.call(SUBMIT, SubmitWhole(submission))
            run_id = ticket.run_id
            # A session whose run waits gives the message to that run: only what is new is shown.
            seen = known.get(run_id, 0)
            code = await following.run(run_id, after=seen, since=seen)
            await following.see_off_others(run_id)
            return code


async def _is_known(caller: Caller, session: str) -> bool:
    return bool((await caller.call(runs.LIST, runs.ListRuns(session_id=SessionId(session), limit=1))).items)


def asker_of(prompt: Prompt | None, decision: Decision | None) -> Asker | None:
    """Return who can be asked something back: a person at a terminal, a command that has the answer, or None."""
    if prompt is not None:
        return "terminal"
    return "command" if decision is not None else None


def prompt_for(stop: Stop, json: bool) -> Prompt | None:
    """How to ask whoever has started the command; None: it is a program, or nobody sits there."""
    return None if json or not Prompt.is_possible() else Prompt(stop)


def printer(json: bool) -> Printer:
    return JsonLines() if json else Transcript(sys.stdout)


def add_endpoint(engine: Engine, base_url: str) -> str:
    """Make the endpoint at a URL known for this process, and return the provider's name: its host and port."""
    try:
        name = urlsplit(base_url).netloc.rpartition("@")[2] or base_url
    except ValueError:
        name = base_url  # the provider's own check says what is wrong with it
    engine.add_provider(name, base_url=base_url, api_key_env="OPENAI_API_KEY")
    return name


def _agent(home: Home, request: Request) -> AgentSpec:
    agent = home.agent(request.agent, request.model)
    if request.model is None:
        return agent
    if not request.model.strip():
        raise UsageError("-m names no model; write -m provider/model-id")
    return msgspec.structs.replace(agent, model=request.model, provider=None)


def read_message(argument: str) -> str:
    """The message itself; `-` stands for standard input."""
    if argument == "-":
        data = sys.stdin.buffer.read(_MOST_BYTES) if sys.stdin else b""
        if len(data) == _MOST_BYTES:
            raise SizeLimitExceeded(
                f"The message on standard input has more than {MESSAGE_LIMIT} characters, the most that are taken. "
                "Send it in parts."
            )
    else:
        data = os.fsencode(argument)
    try:
        message = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("The message is not UTF-8 text; convert it first, for example with iconv.") from None
    if not message.strip():
        raise UsageError("The message is empty. Write it after the options, or pipe it in and write - there.")
    return message.removesuffix("\n")
