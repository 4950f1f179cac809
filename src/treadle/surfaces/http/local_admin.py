"""For another command of the same user, which attaches to the process that owns the home: submissions whole, with
the agent as that command has read it. Whoever may do this may do anything."""

from litestar import Router, get, post
from litestar.params import FromPath, JSONBody

from treadle.domain.agents import AgentSpec
from treadle.domain.memories import Memory
from treadle.operations import Fork, Submission, Ticket
from treadle.operations.memories import Imported
from treadle.operations.memory_schemas import Brought, Remembered
from treadle.surfaces.http.dependencies import Asked, seen_run, served_of


@post("/v1/submissions", status_code=202, opt={"scope": "admin"}, include_in_schema=False)
async def submit(data: JSONBody[Submission], request: Asked) -> Ticket:
    return await served_of(request).service.submit(data)


@post("/v1/forks", status_code=202, opt={"scope": "admin"}, include_in_schema=False)
async def fork(data: JSONBody[Fork], request: Asked) -> Ticket:
    return await served_of(request).service.fork(data)


@get("/v1/runs/{run_id:str}/agent", opt={"scope": "admin"}, include_in_schema=False)
async def agent_of(run_id: FromPath[str], request: Asked) -> AgentSpec:
    """The agent of a run, as it was when the run was asked for."""
    record = await seen_run(run_id, request)
    return await served_of(request).service.agent_of(record.origin.run_id)


@post("/v1/attached/memory", status_code=200, opt={"scope": "admin"}, include_in_schema=False)
async def remember(data: JSONBody[Remembered], request: Asked) -> list[Memory]:
    """What is remembered now; nothing, where it was remembered already."""
    kept = await served_of(request).memory.add(data.agent, data.text, data.kind, data.pinned, data.user)
    return [] if kept is None else [kept]


@get("/v1/attached/memory/{memory_id:str}", opt={"scope": "admin"}, include_in_schema=False)
async def memory(memory_id: FromPath[str], request: Asked) -> Memory:
    return await served_of(request).memory.find(memory_id)


@post("/v1/attached/memory/forget", status_code=200, opt={"scope": "admin"}, include_in_schema=False)
async def forget(data: JSONBody[list[str]], request: Asked) -> list[Memory]:
    return list(await served_of(request).memory.forget(data))


@post("/v1/attached/memory/import", status_code=200, opt={"scope": "admin"}, include_in_schema=False)
async def bring_in(data: JSONBody[Brought], request: Asked) -> Imported:
    return await served_of(request).memory.bring_in(data.data, data.agent, data.known_agents, data.user)


@post("/v1/attached/handover", status_code=202, opt={"scope": "admin"}, include_in_schema=False)
async def hand_over(request: Asked) -> None:
    """Ask this process to release the home. It does so when its runs have come to a safe point."""
    served_of(request).hand_over()


ROUTES = Router("/", route_handlers=[hand_over, submit, fork, agent_of, remember, memory, forget, bring_in])
