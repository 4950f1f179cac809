"""Programs that `bench.service` starts: a tool, a server that reports its commits, and a bare server."""

PLUGIN = """
import treadle
from bench.contest import lookup as bare

lookup = treadle.tool(effect="read", repeatable=True)(bare)
"""
"""The tool of the contest, as an installed package."""

SERVER = """
import asyncio, json, os, sys, time
import uvloop
from treadle.api.engine import create_engine
from treadle.domain.access import SCOPES
from treadle.config.home import Home
from treadle.ports.access import CreateToken
from treadle.surfaces.http.engine_server import make_application, serve_over_tcp
from treadle.surfaces.http.server import bind_socket
from treadle.telemetry.settings import Telemetry

async def main():
    home = Home.from_environment(os.environ)
    engine = create_engine(home=home, telemetry=Telemetry(metrics=True))
    commits = {}

    def note(origin, first, drafts):
        now = time.monotonic_ns()
        for draft in drafts:
            commits[draft.event_id] = now

    async with engine:
        engine.service._hub.observers.insert(0, note)
        token = (await engine.context.access.create(CreateToken("bench", SCOPES))).secret
        app, listener = make_application(engine), bind_socket("127.0.0.1", 0)
        inner = app.asgi

        async def asgi(scope, receive, send):
            if scope["path"] != "/commits":
                return await inner(scope, receive, send)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(commits).encode()})

        app.asgi = asgi
        async with serve_over_tcp(app, listener, (), ()):
            told = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}", "token": token}
            print(json.dumps(told), flush=True)
            await asyncio.Event().wait()

uvloop.run(main())
"""
"""Our server with one more route: when each event was committed."""

ECHO = """
import asyncio, socket, time
import uvicorn

async def app(scope, receive, send):
    events = int(scope["query_string"].partition(b"=")[2])
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(events):
        ready = asyncio.Event()
        asyncio.get_running_loop().call_later(0.002, ready.set)
        await ready.wait()
        body = b"data: %d\\n\\n" % time.monotonic_ns()
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
server = uvicorn.Server(uvicorn.Config(app, loop="uvloop", http="httptools", lifespan="off", log_level="error"))
asyncio.run(server.serve([listener]))
"""
"""A server that only sends an event now and then."""
