"""A model of sessions spread over several PostgreSQL servers: each server does one advance after the other.

Runs arrive at random, in sessions of which some are used much more often than others; a session has one run at a
time. A run is a number of advances with a model reply between two of them. Each advance waits for its server; its
duration is drawn each time. `bench.scale` measures the inputs."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import ne
from statistics import median

from msgspec import Struct

SHARDS = range(1, 9)
ADVANCES = 23
"""Of a run of 10 steps: two for each step, and those that start and end it."""
THINKING_SECONDS = 0.2
"""The average time of a model and its tool between two advances."""
SESSIONS, SKEW = 50_000, 0.5
"""The session in place n is asked as often as n to the power of minus this says."""
P99_LIMIT_SECONDS = 0.1
"""While 99 of 100 advances take less, users do not notice."""
DEATH, MOVE_SECONDS = (0.4, 0.5), 0.5
"""When a server is away, as a share of the time; and how long a session that is moved stands still."""


class SimulatedServer:
    """One PostgreSQL server. Work that arrives while it is down waits until it is back."""

    def __init__(self, service: float, away: tuple[float, float] | None = None) -> None:
        self._service = service
        self._away = away
        self._free = 0.0
        self.busy = 0.0

    def advance(self, now: float, chance: random.Random) -> float:
        """Return when an advance requested now is done."""
        begun, taken = max(now, self._free), chance.expovariate(1 / self._service)
        if self._away is not None and self._away[0] <= begun < self._away[1]:
            begun = self._away[1]
        self._free = begun + taken
        self.busy += taken
        return self._free


class SimulationResult(Struct, frozen=True):
    """The result of a load."""

    finished: float
    """Runs that ended per second."""
    waits: Sequence[Sequence[float]]
    """How long each advance took, by server, without the first and the last tenth of the time."""
    busy: Sequence[float]
    """The share of the time that each server was busy."""

    def p(self, share: float, servers: Sequence[int] | None = None) -> float:
        chosen = self.waits if servers is None else [self.waits[server] for server in servers]
        found = sorted(itertools.chain.from_iterable(chosen))
        return found[int(len(found) * share)] if found else 0.0


def choose_server(session: int, servers: int) -> int:
    """Choose a server by rendezvous hashing: each server draws a number for the session, and the highest wins. An
    added server takes its share from all others equally, and nothing else moves."""
    return max(range(servers), key=lambda server: blake2b(b"%d/%d" % (server, session), digest_size=8).digest())


@lru_cache
def make_server_map(servers: int) -> Sequence[int]:
    return [choose_server(session, servers) for session in range(SESSIONS)]


def draw_sessions(number: int, chance: random.Random) -> list[int]:
    """Draw this many sessions, weighted by their popularity."""
    weights = list(itertools.accumulate(place**-SKEW for place in range(1, SESSIONS + 1)))
    return chance.choices(range(SESSIONS), cum_weights=weights, k=number)


def run_load(servers: Sequence[SimulatedServer], latency: float, rate: float, seconds: float) -> SimulationResult:
    """Simulate runs that arrive at this rate for this long, until the last has ended."""
    chance = random.Random(1)
    sessions = draw_sessions(int(rate * seconds), chance)
    homes = make_server_map(len(servers))
    waiting: dict[int, list[float]] = {}
    queue = [(chance.uniform(0, seconds), -1, session) for session in sessions]
    heapq.heapify(queue)
    waits: list[list[float]] = [[] for _ in servers]
    ended = 0
    while queue:
        now, done, session = heapq.heappop(queue)
        if done < 0:
            if session in waiting:  # it starts when the previous run has ended
                waiting[session].append(now)
                continue
            waiting[session] = []
            done = 0
        home = homes[session]
        finished = servers[home].advance(now, chance) + latency
        if 0.1 * seconds < now < 0.9 * seconds:
            waits[home].append(finished - now)
        if done + 1 < ADVANCES:
            heapq.heappush(queue, (finished + chance.expovariate(1 / THINKING_SECONDS), done + 1, session))
            continue
        ended += finished <= seconds
        later = waiting.pop(session)
        for each in later:
            heapq.heappush(queue, (max(each, finished), -1, session))
    return SimulationResult(ended / seconds, waits, [server.busy / seconds for server in servers])


def simulate(service: float, latency: float, seconds: float, rate: int) -> None:
    """Print what one to eight servers achieve."""
    print(f"a server does an advance in {service * 1000:.2f} ms, and {latency * 1000:.1f} ms are spent on the way")
    print(f"{SESSIONS} sessions, the first asked {SESSIONS**SKEW:.0f} times as often as the last; {seconds:.0f} s")
    print("servers, the most runs that arrive in a second with p99 of an advance below 0.1 s; p50, p99; busiest")
    for number in SHARDS:
        most, played = _find_highest_load(number, service, latency, seconds)
        times = f"{played.p(0.5) * 1000:.1f} ms, {played.p(0.99) * 1000:.1f} ms"
        print(f"  {number}  {most:5.0f}/s  {times}  {max(played.busy):.0%} busy", flush=True)
    _report_failure(service, latency, seconds, rate)
    _report_growth(service, latency, seconds, rate)


def _find_highest_load(
    number: int, service: float, latency: float, seconds: float
) -> tuple[float, SimulationResult]:
    """Return the highest load of those tried, from half of the servers' capacity to all of it."""
    found = None
    for share in (0.5, 0.7, 0.8, 0.9, 0.95):
        rate = share * number / service / ADVANCES
        played = run_load([SimulatedServer(service) for _ in range(number)], latency, rate, seconds)
        if found is None or played.p(0.99) < P99_LIMIT_SECONDS:
            found = rate, played
    assert found is not None
    return found


def _report_failure(service: float, latency: float, seconds: float, rate: int) -> None:
    for number in (2, 4, 8):
        away = (DEATH[0] * seconds, DEATH[1] * seconds)
        servers = [SimulatedServer(service, away if server == 0 else None) for server in range(number)]
        played = run_load(servers, latency, number * rate, seconds)
        others = list(range(1, number))
        print(f"one of {number} is away for {away[1] - away[0]:.0f} s at {number * rate} runs/s:")
        own, theirs = played.p(0.99, [0]), played.p(0.99, others) * 1000
        print(f"  p99 of an advance of its own sessions {own:.1f} s, of the others {theirs:.1f} ms")


def _report_growth(service: float, latency: float, seconds: float, rate: int) -> None:
    """Print how many sessions move when a server is added: by rendezvous hashing, and by modulo."""
    for number in (1, 3, 7):
        moved = sum(map(ne, make_server_map(number), make_server_map(number + 1))) / SESSIONS
        divided = sum(each % number != each % (number + 1) for each in range(SESSIONS)) / SESSIONS
        hours = moved * SESSIONS * MOVE_SECONDS / 3600
        print(f"{number} become {number + 1}: {moved:.0%} of the sessions move (by division {divided:.0%});")
        print(f"  one after the other, at {MOVE_SECONDS} s each, in {hours:.1f} h")
    shares = [count / SESSIONS * 8 for count in Counter(make_server_map(8)).values()]
    print(f"sessions of the fullest of 8: {max(shares):.2f} of the mean; of the emptiest {min(shares):.2f}")
    played = run_load([SimulatedServer(service) for _ in range(8)], latency, 8 * rate, seconds)
    share = max(played.busy) / median(played.busy)
    print(f"at {8 * rate} runs/s the busiest of 8 is at work {share:.2f} of the median")
