"""Which agent a small model gets, and how its size is known."""

import pytest

from treadle.core.context.small_models import fit_agent
from treadle.domain.agents import AgentSpec, SmallModels
from treadle.domain.models import SMALL_MODEL_PARAMETERS, Profile
from treadle.models.catalog import find_parameters
from treadle.models.local.known_weights import WEIGHTS

DEFAULT = AgentSpec(
    "default", persona="Use tools.", tools=("bash",), skills=("*",), small_models=SmallModels((), "Be brief.", 0)
)


def test_a_model_below_one_billion_parameters_gets_no_tools_and_the_short_persona() -> None:
    fitted = fit_agent(DEFAULT, Profile(parameters=SMALL_MODEL_PARAMETERS - 1))
    assert (fitted.tools, fitted.skills, fitted.persona) == ((), (), "Be brief.")
    assert fitted.memory.recall == 0


@pytest.mark.parametrize("parameters", [SMALL_MODEL_PARAMETERS, 70_000_000_000, None])
def test_any_other_model_gets_the_agent_as_it_is(parameters: int | None) -> None:
    assert fit_agent(DEFAULT, Profile(parameters=parameters)) is DEFAULT


def test_tools_that_a_caller_asks_for_are_given_to_small_models() -> None:
    fitted = fit_agent(DEFAULT.with_tools(("@small",)), Profile(parameters=135_000_000))
    assert fitted.tools == ("@small",)
    assert fitted.persona == "Be brief."


def test_an_agent_without_the_setting_keeps_its_tools() -> None:
    own = AgentSpec("own", tools=("bash",), skills=("*",))
    assert fit_agent(own, Profile(parameters=135_000_000)) is own


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("qwen3:0.6b", 600), ("smollm2:135m", 135), ("SmolLM2-360M-Instruct.Q4_1.gguf", 360), ("gemma3:270m", 270),
        ("llama-3.2-1b-instruct", 1000), ("qwen2.5-7b-instruct-1m", 7000), ("llama3.1:70b", 70_000),
        ("claude-sonnet-4-5[1m]", None), ("gpt-4.1", None), ("gemma-3n-e4b", None), ("llama-4-scout-10m", None),
        ("qwen2.5-coder-0.5b", 500), ("gemma-3-270m", 270), ("Qwen/Qwen3-0.6B", 600), ("lfm2-350m-q4_0", 350),
        ("mlx-community/Qwen3-0.6B-4bit", 600), ("deepseek-r1-1.5b", 1500), ("llama-3.1-405b", 405_000),
        ("accounts/fireworks/models/llama-v3p1-405b", 405_000), ("qwen3-30b-a3b", 30_000), ("yi-34b-200k", 34_000),
        ("qwen3-30b-a0.6b", 30_000), ("granite-3.0-1b-a400m", 1000), ("llama-3-70b-4.65bpw", 70_000),
        ("command-r7b-12-2024", None), ("mixtral-8x7b", None), ("kimi-k2-1t-a32b", None), ("gpt-5-mini", None),
        ("gpt-4.1-nano", None), ("gpt-4-0125-preview", None), ("deepseek-v3-0324", None),
        ("mistral-small-2503", None), ("phi-3-mini-128k", None), ("ft:gpt-4o-mini:acme:tune-500m:Ab1", None),
        ("team-500m/claude-sonnet-4-5", None), ("model-0b", None), ("gpt-4o-2024-08-06", None),
    ],
)  # fmt: skip
def test_the_size_is_read_from_the_name(name: str, millions: int | None) -> None:
    assert find_parameters(name) == (None if millions is None else millions * 1_000_000)


def test_the_embedded_model_is_small() -> None:
    assert WEIGHTS["smollm2"].parameters == find_parameters(WEIGHTS["smollm2"].member)
