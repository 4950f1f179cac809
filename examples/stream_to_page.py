"""Streaming an answer to a web page with server-sent events.

python examples/stream_to_page.py          # then open http://127.0.0.1:8080
"""

import asyncio
import json
import sys

from aiohttp import ClientSession, web

import treadle
from treadle.testing import FunctionModel, say

PAGE = """<!doctype html><title>Treadle</title><pre id="answer"></pre>
<script>
const events = new EventSource("/answer");
events.onmessage = event => { document.getElementById("answer").textContent += JSON.parse(event.data); };
events.addEventListener("end", () => events.close());
</script>"""
AGENT = treadle.Agent(name="writer", model="scripted/any")
ENGINE = web.AppKey("engine", treadle.Engine)


async def show_page(request: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


async def stream_answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    async for text in request.app[ENGINE].stream_text(AGENT, "Write a haiku about looms."):
        await response.write(f"data: {json.dumps(text)}\n\n".encode())
    await response.write(b"event: end\ndata:\n\n")
    return response


async def serve(port: int) -> None:
    async with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", FunctionModel(lambda _: say("Threads cross in silence.")))
        app = web.Application()
        app[ENGINE] = engine
        app.add_routes([web.get("/", show_page), web.get("/answer", stream_answer)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        try:
            if "--once" not in sys.argv:
                print(f"http://127.0.0.1:{port}")
                await asyncio.Event().wait()
            port = runner.addresses[0][1]
            async with ClientSession() as client, client.get(f"http://127.0.0.1:{port}/answer") as answer:
                print((await answer.text()).strip())
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(0 if "--once" in sys.argv else 8080))
