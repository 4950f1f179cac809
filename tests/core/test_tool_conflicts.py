"""Which calls of one turn run concurrently: a call that changes something runs alone on what it touches."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.tools.conflicts import Batch, PlannedCall
from treadle.domain.tools import ToolSpec


def spec(name: str, **more: Any) -> ToolSpec:
    return ToolSpec(name, "", {}, **more)


TOOLS = {
    tool.name: tool
    for tool in (
        spec("read", effect="read", paths=("path",)),
        spec("search", effect="read", paths=("path",)),
        spec("write", effect="write", paths=("path",)),
        spec("move", effect="write", paths=("source", "target")),
        spec("patch", effect="write", patches=("input",)),
        spec("fetch", effect="read"),
        spec("think", effect="none"),
        spec("bash"),
        spec("post", effect="external", parallel=True),
        spec("alone", effect="read", parallel=False),
        spec("ask", effect="none", interactive=True),
        spec("clarify", effect="none", asks_a_person=True, parallel=False),
    )
}


def may_run_with(call: PlannedCall, other: PlannedCall, tools: dict[str, ToolSpec]) -> bool:
    batch = Batch(tools)
    batch.add(call)
    return batch.fits(other)


def may_run_together(one: "Given", two: "Given") -> bool:
    first, second = (PlannedCall(name, msgspec.json.encode(arguments).decode()) for name, arguments in (one, two))
    answer = may_run_with(first, second, TOOLS)
    assert may_run_with(second, first, TOOLS) is answer, "it is the same either way"
    return answer


Given = tuple[str, dict[str, Any]]


def patch(*sections: str) -> Given:
    return ("patch", {"input": "*** Begin Patch\n" + "\n".join(sections) + "\n*** End Patch"})


TOGETHER: list[tuple[Given, Given]] = [
    (patch("*** Delete File: a", "*** Delete File: b"), ("write", {"path": "c"})),
    (patch("*** Delete File: a"), patch("*** Delete File: b")),
    (("read", {"path": "a"}), ("read", {"path": "a"})),
    (("read", {"path": "a"}), ("write", {"path": "b"})),
    (("write", {"path": "a"}), ("write", {"path": "b"})),
    (("write", {"path": "src/a"}), ("write", {"path": "src/ab"})),
    (("move", {"source": "a", "target": "b"}), ("write", {"path": "c"})),
    (("write", {"path": "a"}), ("think", {})),
    (("fetch", {"url": "x"}), ("read", {"path": "a"})),
    (("post", {}), ("read", {"path": "a"})),
    (("nosuch", {}), ("bash", {})),
]


@pytest.mark.parametrize(("one", "two"), TOGETHER, ids=str)
def test_calls_without_a_conflict_run_together(one: Given, two: Given) -> None:
    assert may_run_together(one, two)


APART: list[tuple[Given, Given]] = [
    (patch("*** Delete File: a", "*** Delete File: b"), ("read", {"path": "b"})),
    (patch("*** Update File: a", "*** Move to: d/c"), ("search", {"path": "d"})),
    (patch("*** Update File: a", "*** Move to: c"), patch("*** Add File: ./c")),
    (patch("no patch"), ("write", {"path": "c"})),
    (("patch", {"input": 7}), ("write", {"path": "c"})),
    (("write", {"path": "a"}), ("write", {"path": "a"})),
    (("write", {"path": "a"}), ("write", {"path": "./b/../a"})),
    (("write", {"path": "a"}), ("read", {"path": "A"})),
    (("write", {"path": "src/a"}), ("search", {"path": "src"})),
    (("write", {"path": "src/a"}), ("search", {})),
    (("write", {"path": "src/a"}), ("search", {"path": "."})),
    (("write", {"path": "a"}), ("write", {"path": "/work/a"})),
    (("write", {"path": "a"}), ("write", {"path": "../here/a"})),
    (("write", {"path": "/"}), ("write", {"path": "/a"})),
    (("move", {"source": "a", "target": "b"}), ("read", {"path": "b"})),
    (("write", {"path": "a"}), ("fetch", {"url": "x"})),
    (("write", {"path": ["a"]}), ("write", {"path": "b"})),
    (("bash", {}), ("read", {"path": "a"})),
    (("bash", {}), ("bash", {})),
    (("ask", {}), ("think", {})),
    (("clarify", {}), ("read", {"path": "a"})),
    (("alone", {}), ("read", {"path": "a"})),
    (("post", {}), ("write", {"path": "a"})),
]


@pytest.mark.parametrize(("one", "two"), APART, ids=str)
def test_calls_with_a_conflict_do_not_run_together(one: Given, two: Given) -> None:
    assert not may_run_together(one, two)


def test_a_call_with_unreadable_arguments_runs_alone() -> None:
    broken, whole = PlannedCall("write", '{"path": "x'), PlannedCall("write", '{"path": "y"}')
    assert not may_run_with(broken, whole, TOOLS)


ARGUMENTS = ("path", "source", "target")
CALLS = st.tuples(
    st.sampled_from([*sorted(TOOLS), "nosuch"]),
    st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(["a", "a/b", "a/b/c", "b", "/", "/a", "..", "."]) for name in ARGUMENTS}
    ),
)


@given(st.lists(CALLS, max_size=8), CALLS)
def test_call_fits_a_batch_exactly_if_it_may_run_with_each_of_its_calls(admitted: list[Given], call: Given) -> None:
    batch, calls = Batch(TOOLS), list[PlannedCall]()
    for name, arguments in [*admitted, call]:
        asked = PlannedCall(name, msgspec.json.encode(arguments).decode())
        fits = batch.fits(asked)
        assert fits == all(may_run_with(asked, other, TOOLS) for other in calls)
        if fits:
            batch.add(asked)
            calls.append(asked)
