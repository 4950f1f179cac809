"""Headers and compression of answers, and the files of the dashboard: nothing grows with what clients request."""

import gzip
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.surfaces.http.served_home import serve_home
from treadle.surfaces.http import assets
from treadle.surfaces.http.response_headers import accepts_gzip


async def test_json_answers_are_neither_stored_nor_sniffed(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for path, token in (("/v1/runs", None), ("/v1/runs/none", None), ("/v1/runs", ""), ("/healthz", "")):
            reply = await server.ask("GET", path, token=token)
            assert reply.headers["cache-control"] == "no-store", path
            assert reply.headers["x-content-type-options"] == "nosniff", path


async def test_large_answers_are_compressed_where_the_client_accepts_it(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        url = f"http://127.0.0.1:{server.port}/v1/openapi.json"
        headers = {"Authorization": f"Bearer {server.token}"}
        sizes: dict[str, int] = {}
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            for accepted in ("gzip, br", "identity", "gzip;q=0", "*;q=0.5"):
                async with session.get(url, headers={**headers, "Accept-Encoding": accepted}) as reply:
                    body = await reply.read()
                    zipped = reply.headers.get("content-encoding") == "gzip"
                    sizes[accepted] = int(reply.headers["content-length"])
                    assert json.loads(gzip.decompress(body) if zipped else body)["openapi"]
        assert sizes["gzip, br"] == sizes["*;q=0.5"] < sizes["identity"] / 4
        assert sizes["gzip;q=0"] == sizes["identity"]


@pytest.mark.parametrize(
    ("header", "accepted"),
    [("gzip", True), ("br, gzip;q=0.1", True), ("", False), ("gzip; q=0.0", False), ("notgzip", False)],
)
def test_the_weight_of_an_encoding_counts(header: str, accepted: bool) -> None:
    scope: Any = {"method": "GET", "headers": [(b"accept-encoding", header.encode())]}
    assert accepts_gzip(scope) is accepted


def test_files_are_served_from_an_index_that_requests_do_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "dashboard"
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "app-1.js").write_text("let a = 1")
    (folder / "secret.txt").write_text("no")
    monkeypatch.setattr(assets, "FOLDER", folder)
    index = assets.AssetIndex()
    for number in range(1000):
        assert index.find(f"assets/none-{number}.js") is None
        assert index.find(f"assets/./app-1.js?{number}") is None
    assert index.find("assets/../secret.txt") is None
    assert index.find("assets/\0") is None
    found = index.find("assets/app-1.js")
    assert found is not None
    assert found.body == b"let a = 1"
    assert len(vars(index)["_files"]) == 2, "the build, not the requests"


async def test_a_file_is_not_found_before_anything_else_and_the_host_is_checked_first(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        for path in ("/assets/%00", "/assets/none.js", "/assets/%ff"):
            assert (await server.ask("GET", path, token="")).status == 404, path
        for path in ("/assets/none.js", "/", "/runs", "/favicon.svg"):
            assert (await server.ask("GET", path, token="", Host="evil.example")).status == 421, path
