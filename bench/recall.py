"""Measures how well and how fast memories are found: `python -m bench.recall [questions|scale|cost]`.

Questions: those of recall_questions.yaml, each with the one memory that answers it among all the others. Scale: a
hundred thousand memories, whose vectors come from the real embedder and are cached in the folder for temporary
files, so that the minutes this takes are spent once. Cost: what memory adds to a run."""

import asyncio
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import yaml

from bench.recall_corpus import make_memories as corpus
from bench.recall_cost import report_cost
from treadle.domain.ids import AgentId
from treadle.domain.memories import Memory, MemoryScope
from treadle.domain.users import LOCAL_USER
from treadle.memory.embedders import Embedders
from treadle.memory.local_embedder import DIMENSIONS, NAME, LocalEmbedder
from treadle.memory.queries import parse_query
from treadle.memory.search import HybridMemories
from treadle.ports.memory import Vector
from treadle.ports.memory_index import MemoryHit, MemoryView
from treadle.stores.sqlite.connection import open_database, open_reader
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import ThreadWriter
from treadle.system.clock import SystemClock

AGENT = AgentId("agt_bench")
OWN = MemoryScope(AGENT, LOCAL_USER)
QUESTIONS = Path(__file__).with_name("recall_questions.yaml")
FILLERS = 300
MANY = 100_000
ASKED = 60
NOW = 1_790_000_000.0
Way = Callable[[str], Awaitable[list[str]]]


class RecallBench(NamedTuple):
    store: SqliteMemories
    hybrid: HybridMemories
    path: Path


@asynccontextmanager
async def open_bench(folder: Path):
    path = folder / "recall.db"
    writer = ThreadWriter(open_database(str(path)), open_reader(str(path)), str(path), print)
    store = SqliteMemories(writer)
    hybrid = HybridMemories(store, Embedders(), SystemClock())
    await hybrid.start()
    try:
        yield RecallBench(store, hybrid, path)
    finally:
        await hybrid.close()
        await writer.close()


def make_memory(number: int, text: str) -> Memory:
    return Memory(
        memory_id=f"mem_{number:06}", agent_id=AGENT, kind="long_term", text=text, created_at=NOW, source="import"
    )


# ── Questions ──


async def report_questions() -> None:
    data: dict[str, Any] = yaml.safe_load(QUESTIONS.read_text())
    answers = [pair[0] for half in ("dev", "test") for kind in data[half].values() for pair in kind]
    others = [*data["distractors"], *corpus(FILLERS, seed=99)]
    print(f"{len(answers)} questions; each answer among {len(answers) - 1 + len(others)} other memories")
    with tempfile.TemporaryDirectory() as folder:
        async with open_bench(Path(folder)) as bench:
            await bench.store.add([make_memory(n, text) for n, text in enumerate([*answers, *others])])
            bench.hybrid.catch_up(OWN, "local")
            await bench.hybrid.indexer.wait_until_idle()
            for half in ("dev", "test"):
                print(f"\n{half}: hit@1 / hit@5 in percent")
                await _compare(bench, data[half])
                found = [(await bench.hybrid.recall(OWN, text, 5, "local")).found for text in data["nothing"][half]]
                kept_quiet = sum(not hits for hits in found)
                print(f"nothing fits, and nothing is recalled: {kept_quiet} of {len(found)}")


async def _compare(bench: RecallBench, kinds: dict[str, list[tuple[str, str]]]) -> None:
    embedder = LocalEmbedder()

    async def by_text(text: str) -> list[str]:
        return [hit.memory.text for hit in (await bench.hybrid.recall(OWN, text, 5, "none")).found]

    async def by_terms(text: str) -> list[str]:
        terms = parse_query(text).word_terms
        found = await bench.store.read(lambda view: view.find_matching(OWN, terms, 5))
        return [hit.memory.text for hit in found]

    async def by_vectors(text: str) -> list[str]:
        (vector,) = await embedder.embed([text])
        found = await bench.store.read(lambda view: view.find_nearest(OWN, NAME, vector, 5))
        return [hit.memory.text for hit in found]

    async def by_both(text: str) -> list[str]:
        return [hit.memory.text for hit in (await bench.hybrid.recall(OWN, text, 5, "local")).found]

    ways: dict[str, Way] = {"terms": by_terms, "text": by_text, "vectors": by_vectors, "hybrid": by_both}
    print(f"{'':12}{'':4}" + "".join(f"{way:>14}" for way in ways))
    totals: dict[str, tuple[int, int]] = dict.fromkeys(ways, (0, 0))
    for kind, pairs in kinds.items():
        line = f"{kind:12}{len(pairs):4}"
        for way, find in ways.items():
            first, five = await _hits(find, pairs)
            totals[way] = (totals[way][0] + first, totals[way][1] + five)
            line += f"{100 * first / len(pairs):8.0f} /{100 * five / len(pairs):4.0f}"
        print(line)
    count = sum(map(len, kinds.values()))
    print(
        f"{'all':12}{count:4}"
        + "".join(f"{100 * a / count:8.0f} /{100 * b / count:4.0f}" for a, b in totals.values())
    )
    await embedder.close()


async def _hits(find: Way, pairs: Sequence[tuple[str, str]]) -> tuple[int, int]:
    first = five = 0
    for answer, question in pairs:
        found = await find(question)
        first += found[:1] == [answer]
        five += answer in found
        if os.environ.get("SHOW_MISSES") == find.__name__ and found[:1] != [answer]:
            print(f"    {question!r}: {found[:2]}")
    return first, five


# ── Scale ──


async def report_scale() -> None:
    texts = list(corpus(MANY))
    vectors = await _load_vectors(texts)
    with tempfile.TemporaryDirectory() as folder:
        async with open_bench(Path(folder)) as bench:
            await _fill(bench, texts, vectors)
            await _measure(bench, texts, vectors)


async def _load_vectors(texts: Sequence[str]) -> "array[float]":
    """Return the numbers of all vectors, one text after the other."""
    kept = Path(tempfile.gettempdir()) / f"treadle-bench-recall-{MANY}.f32"
    found = array("f")
    if kept.exists() and kept.stat().st_size == MANY * DIMENSIONS * 4:
        found.frombytes(kept.read_bytes())
        return found
    embedder, began = LocalEmbedder(), time.perf_counter()
    for at in range(0, len(texts), 1000):
        for vector in await embedder.embed(texts[at : at + 1000]):
            found.extend(vector)
    await embedder.close()
    print(f"{len(texts):,} vectors made in {time.perf_counter() - began:.0f} s, kept in {kept}")
    kept.write_bytes(found.tobytes())
    return found


def _vector(vectors: "array[float]", number: int) -> Sequence[float]:
    return vectors[number * DIMENSIONS : (number + 1) * DIMENSIONS]


async def _fill(bench: RecallBench, texts: Sequence[str], vectors: "array[float]") -> None:
    began = time.perf_counter()
    for at in range(0, len(texts), 5000):
        await bench.store.add([make_memory(n, f"{texts[n]} ({n})") for n in range(at, min(at + 5000, len(texts)))])
    added, bare = time.perf_counter(), _size(bench.path)
    while pending := await bench.store.read(lambda view: view.list_unembedded(OWN, NAME, DIMENSIONS, 5000)):
        pairs = [(item, _vector(vectors, int(item.memory.memory_id[4:]))) for item in pending]
        await bench.store.keep(OWN, NAME, pairs)
    kept = time.perf_counter()
    print(f"{len(texts):,} memories added in {added - began:.0f} s, their vectors in {kept - added:.0f} s")
    print(f"file: {bare / 2**20:.0f} MB of text and words, {_size(bench.path) / 2**20:.0f} MB with vectors")


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def _nearest(vector: Vector, view: MemoryView) -> Sequence[MemoryHit]:
    return view.find_nearest(OWN, NAME, vector, 5)


async def _measure(bench: RecallBench, texts: Sequence[str], vectors: "array[float]") -> None:
    import numpy as np

    exact = np.frombuffer(vectors, dtype=np.float32).reshape(-1, DIMENSIONS)
    data: dict[str, Any] = yaml.safe_load(QUESTIONS.read_text())
    known = [pair[1] for kinds in (data["dev"], data["test"]) for pairs in kinds.values() for pair in pairs]
    pieces = [" ".join(texts[n].split()[2:9]) for n in range(0, MANY, MANY // ASKED)]
    embedder, agreed, messages = LocalEmbedder(), 0, [*known[:: len(known) // ASKED], *pieces]
    for message in messages:
        (vector,) = await embedder.embed([message])
        likeness = exact @ np.array(vector, dtype=np.float32)
        fifth = np.partition(likeness, -5)[-5] - 1e-6  # a duplicate text is equally near both times
        hits = await bench.store.read(partial(_nearest, vector))
        found = [int(hit.memory.memory_id[4:]) for hit in hits]
        agreed += sum(bool(likeness[number] >= fifth) for number in found)
    share = 100 * agreed / 5 / len(messages)
    print(f"the five nearest agree with an exact search in {share:.1f}% ({len(messages)} asked)")
    await embedder.close()
    for setting in ("local", "none"):
        times: list[float] = []
        await bench.hybrid.recall(OWN, "warm up", 5, setting)
        for message in messages:
            began = time.perf_counter()
            await bench.hybrid.recall(OWN, message, 5, setting)
            times.append(1000 * (time.perf_counter() - began))
        half, most = median(times), quantiles(times, n=20)[18]
        print(f"recall with embedder {setting}: p50 {half:.1f} ms, p95 {most:.1f} ms, max {max(times):.1f} ms")
    began = time.perf_counter()
    for _ in range(200):
        await bench.hybrid.recall(MemoryScope(AgentId("agt_empty"), LOCAL_USER), "hello", 5, "auto")
    print(f"recall for an agent without memories: {(time.perf_counter() - began) * 5:.2f} ms")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["questions", "scale", "cost"]
    if "questions" in wanted:
        asyncio.run(report_questions())
    if "scale" in wanted:
        asyncio.run(report_scale())
    if "cost" in wanted:
        asyncio.run(report_cost())
