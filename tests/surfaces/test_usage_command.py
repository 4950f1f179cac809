"""`treadle usage`, and a run that reaches its budget."""

from datetime import UTC, datetime

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli import against

HEAD = ["RUNS", "CALLS", "IN", "CACHED", "OUT", "TOOLS", "COST", "CREDITS"]


def write_prices(shell: Shell) -> None:
    prices = "models: {fake/m: {prices: {input: 100, output: 1000}}}\ncredits: {per_dollar: 10}\n"
    providers = f"providers: {{fake: {{base_url: '{shell.url}'}}}}\ndefaults: {{model: fake/m}}\n"
    shell.write("config.yaml", providers + prices)


def test_usage_is_summed_up(shell: Shell) -> None:
    @against(shell, says("one"), says("two"), says("three"))
    async def _(server: FakeEndpoint) -> None:
        write_prices(shell)
        shell.write("agents/other/config.yaml", "name: other\nmodel: fake/m\n")
        for agent in ("default", "default", "other"):
            assert (await shell("run", "-a", agent, "hello")).code == 0
        lines = (await shell("usage")).out.splitlines()
        assert lines[0].split() == ["AGENT", *HEAD]
        assert [line.split()[:3] for line in lines[1:]] == [
            ["default", "2", "2"],
            ["other", "1", "1"],
            ["total", "3", "3"],
        ]
        [used] = (await shell("usage", "--agent", "default", "--by", "model", "--json")).json
        assert (used["key"], used["runs"], used["model_calls"]) == ("fake/m", 2, 2)
        expected = (used["input_tokens"] * 100 + used["output_tokens"] * 1000) / 1e6
        assert abs(used["cost"] - expected) < 1e-9
        assert abs(used["credits"] - expected * 10) < 1e-9
        today = datetime.now(UTC).date().isoformat()
        [by_day] = (await shell("usage", "--by", "day", "--since", today, "--json")).json
        assert (by_day["key"], by_day["runs"]) == (today, 3)
        [by_token] = (await shell("usage", "--by", "token")).out.splitlines()[1:]
        assert by_token.split()[:2] == ["-", "3"], "no run had a token"
        nothing = await shell("usage", "--since", "2999-01-01")
        assert (nothing.code, nothing.err) == (0, "No usage matches.\n")


def test_calls_without_a_price_are_reported(shell: Shell) -> None:
    @against(shell, says("one"))
    async def _(server: FakeEndpoint) -> None:
        await shell("run", "hello")
        assert "The cost of 1 call is unknown" in (await shell("usage")).err


async def test_an_invalid_day_or_key_is_reported_in_one_line(shell: Shell) -> None:
    wrong = await shell("usage", "--since", "yesterday")
    assert (wrong.code, wrong.complaint) == (
        2,
        "--since is `yesterday`; accepted: a duration such as 2h or 7d, or a day.",
    )
    assert (await shell("usage", "--by", "mood")).code == 2
    assert (await shell("usage")).err == "No usage yet.\n"


def test_a_run_at_its_ceiling_exits_with_3_and_says_what_to_do(shell: Shell) -> None:
    @against(shell)
    async def _(server: FakeEndpoint) -> None:
        write_prices(shell)
        shell.write("agents/poor/config.yaml", "name: poor\nmodel: fake/m\nlimits: {cost: 0.5}\n")
        done = await shell("run", "-a", "poor", "hello")
        assert done.code == 3
        assert "may cost 0.5 dollars" in done.err
        assert "limits.cost" in done.err
        assert not server.requests


def test_an_agent_without_credits_is_refused_before_anything_is_written(shell: Shell) -> None:
    @against(shell)
    async def _(server: FakeEndpoint) -> None:
        write_prices(shell)
        shell.write("agents/poor/config.yaml", "name: poor\nmodel: fake/m\nquotas: {credits: 0}\n")
        done = await shell("run", "-a", "poor", "hello")
        assert (done.code, done.complaint) == (
            3,
            "Agent `poor` has spent 0 of 0 credits: nothing is left. Raise quotas.credits.",
        )
        assert (await shell("runs", "list")).out == ""
