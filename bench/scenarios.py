"""The contestants, the scenarios, and the samples."""

from dataclasses import dataclass

from bench.endpoint import TALK


@dataclass(frozen=True)
class Contestant:
    """A module of bench.contestants. A peer needs an environment of its own."""

    name: str
    title: str
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """One kind of work. Much slower peers do fewer runs of it, at the same concurrency."""

    name: str
    title: str
    steps: int
    tokens: int
    concurrency: int
    runs: int
    peer_runs: int

    @property
    def model(self) -> str:
        """Return the model name that tells the endpoint what to do."""
        return f"steps-{self.steps}-tokens-{self.tokens}" if self.steps else f"tokens-{self.tokens}"

    def runs_of(self, contestant: Contestant) -> int:
        return self.peer_runs if contestant.requirements else self.runs

    @property
    def calls_per_run(self) -> int:
        return self.steps + 1

    @property
    def tokens_per_run(self) -> int:
        return self.steps * TALK + self.tokens


ALONE = Scenario("alone", "one run at a time, 20 steps", 20, 16, concurrency=1, runs=20, peer_runs=5)
CROWD = Scenario("crowd", "100 concurrent runs, 20 steps", 20, 16, concurrency=100, runs=400, peer_runs=100)
LONG = Scenario("long", "4 concurrent runs, 100 steps", 100, 16, concurrency=4, runs=8, peer_runs=4)
TOKENS = Scenario("tokens", "one answer of 2000 tokens at a time", 0, 2000, concurrency=1, runs=20, peer_runs=5)
SCENARIOS = (ALONE, CROWD, LONG, TOKENS)
QUICK = (
    Scenario("alone", ALONE.title, 20, 16, concurrency=1, runs=5, peer_runs=2),
    Scenario("crowd", CROWD.title, 20, 16, concurrency=100, runs=200, peer_runs=100),
    Scenario("long", LONG.title, 100, 16, concurrency=4, runs=4, peer_runs=4),
    Scenario("tokens", TOKENS.title, 0, 2000, concurrency=1, runs=5, peer_runs=2),
)


TREADLE = Contestant("treadle", "Treadle")
FLOOR = Contestant("floor", "the floor")
FORMATS = (
    Contestant("treadle_anthropic", "Treadle, anthropic_messages"),
    Contestant("treadle_responses", "Treadle, responses"),
)
"""Treadle with the other wire formats. The peers use chat_completions."""
CONTESTANTS = (
    TREADLE,
    FLOOR,
    *FORMATS,
    Contestant("treadle_postgres", "Treadle on PostgreSQL"),
    Contestant("openai_sdk", "openai SDK loop", ("openai",)),
    Contestant("pydantic_ai", "pydantic-ai", ("pydantic-ai-slim[openai]",)),
    Contestant("openai_agents", "openai-agents", ("openai-agents",)),
    Contestant(
        "langgraph",
        "langgraph, SQLite saver",
        ("langgraph", "langchain", "langchain-openai", "langgraph-checkpoint-sqlite"),
    ),
    Contestant("agno", "agno", ("agno", "openai")),
)


@dataclass(frozen=True)
class Sample:
    """The cost of one scenario for one contestant in one round, after the warm-up."""

    runs: int
    calls: int
    tokens: int
    cpu: float  # seconds, user and system, all threads
    wall: float  # seconds
    rss: int  # peak, KiB
    version: str

    @property
    def ms_per_call(self) -> float:
        return self.cpu * 1e3 / self.calls

    @property
    def us_per_token(self) -> float:
        return self.cpu * 1e6 / self.tokens

    @property
    def runs_per_second(self) -> float:
        return self.runs / self.wall


@dataclass(frozen=True)
class Failure:
    """Why there is no sample."""

    reason: str
