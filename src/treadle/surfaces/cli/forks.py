"""`treadle runs fork`: a new run from a step of an old one, followed to its end."""

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.api.agent import apply_options
from treadle.api.engine import create_engine
from treadle.bootstrap.stores import ONLY_OWN
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId
from treadle.operations.forks import Fork
from treadle.operations.local_admin import FORK, ForkWhole
from treadle.surfaces.cli.approval_prompt import Asking
from treadle.surfaces.cli.connection import reached
from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.run import add_endpoint, asker_of, printer, prompt_for, read_message
from treadle.surfaces.cli.run_view import Following
from treadle.surfaces.cli.runs import Going
from treadle.surfaces.cli.wait_hint import endpoint_option


class Wanted(Struct, frozen=True):
    """What the new run is to have otherwise."""

    step: int | None = None
    model: str | None = None
    message: str | None = None
    agent: str | None = None


def fork_run(run_id: str, wanted: Wanted, going: Going) -> Coroutine[Any, Any, int]:
    # Standard input is read before there is an event loop, as for `treadle run`.
    message = None if wanted.message is None else read_message(wanted.message)
    return _fork(RunId(run_id), msgspec.structs.replace(wanted, message=message), going)


async def _fork(run_id: RunId, wanted: Wanted, going: Going) -> int:
    home = Home.from_environment(os.environ)
    agent = None if wanted.agent is None else _here(home.agent(wanted.agent, wanted.model))
    engine = create_engine(home=home, share=ONLY_OWN)
    provider = None if going.base_url is None else add_endpoint(engine, going.base_url)
    with Stop() as stop:
        async with reached(engine, home, going.base_url) as home_of:
            client, out, prompt = home_of.client, printer(going.json), prompt_for(stop, going.json)
            asking = Asking(client, home, out, prompt, going.decision)
            following = Following(home_of, out, stop, asking, endpoint_option(going.base_url))
            await following.announce(run_id)
            if stop.asked.is_set():
                return stop.exit_code
            asker = asker_of(prompt, going.decision)
            fork = Fork(run_id, wanted.step, wanted.model, wanted.message, agent, asker=asker, provider=provider)
            ticket = await client.call(FORK, ForkWhole(fork))
            out.note(f"{ticket.run_id} goes on from {run_id}")
            code = await following.run(ticket.run_id)
            await following.see_off_others(ticket.run_id)
            return code


def _here(agent: AgentSpec) -> AgentSpec:
    """An agent that has no folder of its own works where the command was started."""
    return agent if agent.workspace is not None else apply_options(agent, {"workspace": Path.cwd()})
