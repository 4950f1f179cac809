"""`python -m bench.tokens`: how far the engine's estimate of a prompt is from what the embedded model counts.

Sessions with tools grow turn by turn through the engine's own fold; the estimate before each request is compared
with its count. Then the cost of an estimate is measured. `--fit` fits the weights again; `--ask 3` sends the
requests of the three smallest sessions, to check that the server reports what was counted."""

import argparse
import asyncio
import os
import statistics
import timeit
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from tests.tokens.measure import Counter, Measured, counter, replay
from tests.tokens.sessions import CHECK, FIT, sessions, texts

from bench.token_fit import fit_corpus
from treadle.core.context.tokens import estimate_message, estimate_text
from treadle.domain.messages import Message, Text, ToolResult, ToolUse, user
from treadle.models.local.weights import find_index_url, pull_weights
from treadle.ports.model import Preamble

FOLDER = Path(__file__).parents[1] / ".demo" / "models"
BAR_MEAN, BAR_MOST = 0.05, 0.10
"""Of all requests: the mean error, and the 95th percentile."""
BAR_SHORT_US, BAR_LONG_US = 5.0, 60.0
"""For a message of 200 characters, and for one of 64 KB."""
HALVES = ((FIT, "fitted on"), (CHECK, "checked on"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="print newly fitted weights")
    parser.add_argument("--ask", type=int, default=0, metavar="N", help="send the requests of N sessions")
    options = parser.parse_args()
    return asyncio.run(measure(options.fit, options.ask))


async def measure(fits: bool, asks: int) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    weights = await pull_weights("smollm2", FOLDER, find_index_url(os.environ), lambda done, total: None)
    async with counter(weights) as count:
        if fits:
            for name, weight in (await fit_corpus(count)).items():
                print(f"{name:16}{weight:8.3f}")
            return 0
        found = [request for session in sessions() for request in await replay(session, count)]
        print_report(found)
        if asks:
            await compare(found, count, asks)
    good = is_bar_met(found)
    print(f"\nerror: mean below {BAR_MEAN:.0%}, 95% below {BAR_MOST:.0%}: {'met' if good else 'MISSED'}")
    report_speed()
    return 0 if good else 1


def is_bar_met(found: Iterable[Measured]) -> bool:
    errors = sorted(request.error for request in found)
    return statistics.mean(errors) < BAR_MEAN and errors[int(len(errors) * 0.95)] < BAR_MOST


def print_report(found: list[Measured]) -> None:
    old = estimate_by_fours(found)
    count = len({id(request.session) for request in found})
    print(f"{count} sessions, {len(found)} requests\n")
    print(f"{'':34}{'requests':>9}{'mean':>8}{'95%':>8}{'worst':>8}   4 characters a token")
    for half, name in HALVES:
        mine = [(r, o) for r, o in zip(found, old, strict=True) if r.session.half == half]
        print_line(f"{name}: all", mine)
        print_line("  first requests", [(r, o) for r, o in mine if r.number == 0])
        print_line("  later ones", [(r, o) for r, o in mine if r.number])
    print_line("both halves: all", list(zip(found, old, strict=True)))
    print_line("  first requests", [(r, o) for r, o in zip(found, old, strict=True) if r.number == 0])
    print_line("  later ones", [(r, o) for r, o in zip(found, old, strict=True) if r.number])
    print()
    kinds: dict[str, list[tuple[Measured, int]]] = defaultdict(list)
    for request, other in zip(found, old, strict=True):
        kinds[request.session.kind].append((request, other))
    for kind, some in kinds.items():
        print_line(kind, some)
    report_added(found)


def print_line(name: str, some: list[tuple[Measured, int]]) -> None:
    errors = sorted(request.error for request, _ in some)
    others = sorted(abs(old - request.counted) / request.counted for request, old in some)
    print(f"{name:34}{len(errors):9}{_spread(errors)}  {_spread(others)}")


def _spread(errors: list[float]) -> str:
    worst = errors[int(len(errors) * 0.95)]
    return f"{statistics.mean(errors):8.1%}{worst:8.1%}{errors[-1]:8.1%}"


def report_added(found: list[Measured]) -> None:
    """Print how far off the estimate is for what was added since the last reply alone, which is harder."""
    errors: list[float] = []
    for before, request in pairwise(found):
        anchor = before.counted + before.replied
        grown = request.counted - anchor
        if request.number and grown > 50:
            errors.append(abs(request.estimate - request.counted) / grown)
    print(f"\n{'of what was added alone':34}{len(errors):9}{_spread(sorted(errors))}")


def estimate_by_fours(found: list[Measured]) -> list[int]:
    """Return the estimate of the rule of four characters per token, anchored and corrected in the same way."""
    estimates: list[int] = []
    anchor, guessed, rate = 0, 0, 1.0
    for request in found:
        if request.number == 0:
            anchor, guessed, rate = 0, 0, 1.0
        guess = sum(map(_fours, request.messages)) + _before(request.request.preamble)
        estimates.append(anchor + round((guess - guessed) * rate) if anchor else guess)
        reply = _fours(Message("assistant", request.session.turns[request.number].reply))
        anchor, guessed = request.counted + request.replied, guess + reply
        rate = anchor / guessed
    return estimates


def _fours(message: Message) -> int:
    tokens = 4
    for part in message.parts:
        if isinstance(part, ToolUse):
            tokens += (len(part.name) + len(part.arguments)) // 4 + 4
        elif isinstance(part, ToolResult):
            tokens += len(part.content) // 4 + 4
        elif isinstance(part, Text):
            tokens += len(part.text) // 4
    return tokens


def _before(preamble: Preamble) -> int:
    tools = sum(len(f"{tool.name}{tool.description}{tool.schema}") // 4 + 4 for tool in preamble.tools)
    return len(preamble.system) // 4 + tools


async def compare(found: list[Measured], count: Counter, asks: int) -> None:
    """Print whether the server reports what was counted."""
    last = {id(request.session): request for request in found}
    smallest = sorted(last.values(), key=lambda request: request.counted)[:asks]
    for end in smallest:
        sent = await replay(end.session, count, count.reported)
        counted = [request.counted for request in found if request.session is end.session]
        reported = [request.counted for request in sent]
        print(f"{end.session.kind}: reported {reported}, counted {counted}")
        assert reported == counted


def report_speed() -> None:
    """Print the cost of an estimate."""
    prose = texts(CHECK)["english"]
    code, log = texts(CHECK)["systems"], "2025-03-04T05:06:07Z GET /a/b 200 0x7f3a 12ms\n"
    chinese = texts(CHECK)["chinese"]
    short = user(prose[:200])
    print()
    for name, work, bar in (
        ("a message of 200 characters", lambda: estimate_message(short), BAR_SHORT_US),
        ("4 KB of prose", lambda text=(prose * 9)[:4096]: estimate_text(text), BAR_LONG_US),
        ("64 KB of prose", lambda text=(prose * 99)[:65536]: estimate_text(text), BAR_LONG_US),
        ("64 KB of code", lambda text=(code * 99)[:65536]: estimate_text(text), BAR_LONG_US),
        ("64 KB of a log", lambda text=(log * 2000)[:65536]: estimate_text(text), BAR_LONG_US),
        ("64 KB of Chinese", lambda text=(chinese * 400)[:65536]: estimate_text(text), None),
        ("16 MB of prose", lambda text=prose * 10000: estimate_text(text), BAR_LONG_US),
    ):
        spent = measure_microseconds(work)
        missed = "" if bar is None or spent <= bar else f", above {bar:g}: is the machine busy?"
        print(f"{name:34}{spent:8.1f} us{missed}")


def measure_microseconds(work: Callable[[], int]) -> float:
    return min(timeit.repeat(work, number=1000, repeat=7)) * 1000


if __name__ == "__main__":
    raise SystemExit(main())
