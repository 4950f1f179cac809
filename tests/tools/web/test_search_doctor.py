"""The doctor says how to configure web search, and asks the engine that is configured."""

from pathlib import Path

from aiohttp import web

from tests.tools.web.serving import serving
from treadle.config.home import Home
from treadle.doctor.web_search import describe_web_search


async def test_the_doctor_explains_and_probes_web_search(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"results": [{"url": "https://example.org", "title": "Looms", "content": ""}]})

    missing = await describe_web_search(Home(tmp_path))
    assert (missing.state, missing.found) == ("note", "not configured")
    assert "web_search: {engine: searxng" in missing.advice
    async with serving(answer) as port:
        line = f"web_search: {{engine: searxng, base_url: 'http://ann:pass-word@127.0.0.1:{port}'}}\n"
        (tmp_path / "config.yaml").write_text(line)
        probed = await describe_web_search(Home(tmp_path))
        configured = await describe_web_search(Home(tmp_path), offline=True)
        assert (probed.state, configured.state) == ("ok", "set")
        assert "pass-word" not in f"{probed} {configured}"
    stopped = await describe_web_search(Home(tmp_path))
    assert stopped.state == "wrong"
    assert "could not be reached" in stopped.found
