"""However a provider cuts its calls into fragments, the calls come out whole."""

import json
from itertools import chain, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fake_endpoint import fragment
from tests.models.chat import HELLO
from treadle.domain.messages import ToolUse
from treadle.models.formats.chat_reply import ChatReply
from treadle.ports.model import CallDelta, Delta

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=5)
ARGUMENTS = st.dictionaries(st.text(max_size=5), JSON, max_size=3).map(json.dumps)
CALLS = st.lists(st.tuples(st.sampled_from(["read", "write"]), ARGUMENTS), min_size=1, max_size=4)


@st.composite
def draw_fragments(draw: st.DrawFn) -> tuple[list[ToolUse], list[Any]]:
    """Calls, and the fragments of one dialect: with an index and interleaved, or one after the other; with id
    and name in every fragment, or in the first alone."""
    calls = [ToolUse(f"call_{place}", name, arguments) for place, (name, arguments) in enumerate(draw(CALLS))]
    indexed, repeats = draw(st.booleans()), draw(st.booleans())
    queues: list[list[Any]] = []
    for place, call in enumerate(calls):
        index = place if indexed else None
        first, *rest = _cut(call.arguments, draw(st.lists(st.integers(0, 40), max_size=5)))
        names = (call.call_id, call.name) if repeats else (None, None)
        queues.append([fragment(index, call.call_id, call.name, first)])
        queues[-1] += [fragment(index, *names, piece) for piece in rest]
    if not indexed:
        return calls, list(chain.from_iterable(queues))
    sent = [queue.pop(0) for queue in queues]  # calls begin in their order, and go on in any
    while waiting := [queue for queue in queues if queue]:
        sent.append(draw(st.sampled_from(waiting)).pop(0))
    return calls, sent


def _cut(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    return [text[start:end] for start, end in pairwise(edges)]


@given(draw_fragments(), st.integers(1, 3))
def test_calls_are_assembled_from_any_fragments(sent: tuple[list[ToolUse], list[Any]], per_chunk: int) -> None:
    calls, fragments = sent
    reply = ChatReply(HELLO)
    shown = [""] * len(calls)

    def show(delta: Delta) -> None:
        assert isinstance(delta, CallDelta)
        assert delta.name == calls[delta.index].name
        shown[delta.index] += delta.arguments

    for start in range(0, len(fragments), per_chunk):
        chunk = {"choices": [{"delta": {"tool_calls": fragments[start : start + per_chunk]}}]}
        reply.feed([json.dumps(chunk).encode()])
        reply.show_new(show)
    reply.feed([b'{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}'])
    assert reply.finish(0).parts == tuple(calls)
    assert shown == [call.arguments for call in calls]
