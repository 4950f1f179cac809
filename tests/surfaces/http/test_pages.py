"""Lists come in pages. Each continues where the previous one ended, and contains nothing of other users."""

from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.http.served_home import ServedHome, serve_home


async def read_pages(server: ServedHome, path: str, token: str | None = None) -> list[list[Any]]:
    """Return all pages of a list, two items each."""
    pages: list[list[Any]] = []
    cursor = ""
    while True:
        reply = await server.ask("GET", f"{path}?limit=2{cursor}", token=token)
        assert reply.status == 200, reply
        pages.append(reply.json["items"])
        if reply.json["next"] is None:
            return pages
        cursor = f"&cursor={reply.json['next']}"


@pytest.mark.parametrize(("path", "name"), [("/v1/runs", "run_id"), ("/v1/sessions", "session_id")])
async def test_the_pages_of_a_list_contain_every_item_once(tmp_path: Path, path: str, name: str) -> None:
    async with serve_home(tmp_path) as server:
        for agent in ("one", "two", "one", "one", "two"):
            await server.begin(agent)
        whole = [item[name] for item in (await server.ask("GET", path)).json["items"]]
        pages = await read_pages(server, path)
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [item[name] for page in pages for item in page] == whole
        mine = await server.mint("read", agents=["one"])
        theirs = [item for page in await read_pages(server, path, mine) for item in page]
        assert [item["agent"] for item in theirs] == ["one"] * 3
        assert (await server.ask("GET", f"{path}?cursor=unheard-of")).json["items"] == []
