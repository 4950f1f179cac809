"""The recorded diffs of real changes stay small, and nothing else knows what they added."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "docs" / "cost-of-a-change"
CHANGES = {
    "event": (6, "CallsDropped"),
    "operation": (4, "RunTree"),
    "operation-in-all-surfaces": (6, "AskMemory"),
}
"""A recorded diff -> the most source files that it may change, and what it adds."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_touches_few_source_files(name: str) -> None:
    limit, added = CHANGES[name]
    patch = (RECORDED / f"{name}.patch").read_text()
    changed = set(re.findall(r"(?m)^\+\+\+ b/(\S+)", patch))
    assert added in patch
    assert changed
    assert len(changed) <= limit
    assert {path for path in changed if not (ROOT / path).is_file()} == set()
    knows = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if re.search(rf"\b{added}\b", path.read_text())
    }
    assert knows <= changed, "record the diff again: the change now touches more files"


def test_every_recorded_diff_is_counted() -> None:
    assert {path.stem for path in RECORDED.glob("*.patch")} == set(CHANGES)
    page = (RECORDED / "README.md").read_text()
    for name, (limit, _) in CHANGES.items():
        patch = (RECORDED / f"{name}.patch").read_text()
        assert re.search(rf"\({name}\.patch\).*\| {patch.count('+++ b/')} \| {limit} \|", page), name
