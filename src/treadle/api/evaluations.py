"""Evaluations from scripts and tests: suites against the agents of a home, an engine or a server."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Unpack

from treadle.api.client import AsyncClient
from treadle.api.engine import Engine
from treadle.api.suites import SuiteLike, SuiteOptions
from treadle.bootstrap.databases import find_owner
from treadle.config.home import Home
from treadle.domain.evaluations import Evaluation


def evaluate(
    *suites: SuiteLike, engine: "Engine | AsyncClient | None" = None, **options: Unpack[SuiteOptions]
) -> Evaluation:
    """Run the cases of suites, check what the agents did, record the results and return them.

    A suite is the name or the path of its file, or its content as in the file:

        evaluation = treadle.evaluate({
            "agent": "default",
            "cases": [{
                "name": "greeting",
                "message": "How are you?",
                "checks": [{"check": "contains", "text": "fine"}],
            }],
        })
        print(evaluation.results[0].answer)
        assert evaluation.rate == 1, evaluation.explain()

    The agents are those of the home: of the process that owns it, such as `treadle serve`, if there is one. Pass an
    `engine` that is not open for agents, tools and models of the program. The call blocks until the end: in async
    code use `await engine.evaluate(…)`, or `evaluate` of a client. What has ended before is not paid again."""
    chosen = engine if engine is not None else open_home()

    async def open_and_evaluate() -> Evaluation:
        async with chosen:
            return await chosen.evaluate(*suites, **options)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(open_and_evaluate())
    with ThreadPoolExecutor(1, "treadle-evaluate") as pool:
        return pool.submit(copy_context().run, asyncio.run, open_and_evaluate()).result()


def open_home() -> "Engine | AsyncClient":
    """Return a client of the process that owns the home, or an engine on it."""
    owner = find_owner(Home.from_environment(os.environ))
    return Engine() if owner is None or owner.socket is None else AsyncClient()
