"""A small size of the benchmark of compactions."""

from pathlib import Path

from bench.compaction import run_session


async def test_constraints_decisions_and_files_survive_compactions(tmp_path: Path) -> None:
    figures = await run_session(tmp_path, compactions=3, facts=10)
    assert figures.compactions >= 3
    assert figures.recalls > 0
    assert figures.missed_bars(has_prefix_bar=False) == []
    assert figures.steps - figures.same_prefix == figures.compactions, "only a compaction changes the prefix"
