"""The home and its files: what is created, what is read, and one-line errors for invalid files."""

import os
import stat
from pathlib import Path

import pytest

from treadle.config.home import DEFAULT_APPROVAL_TOOLS, DEFAULT_PERMITTED_TOOLS, Home
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.permissions import SandboxPolicy


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def write(home: Home, name: str, text: str | bytes) -> Path:
    path = home.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def agent_file(home: Home, text: str | bytes, name: str = "a") -> Path:
    return write(home, f"agents/{name}/config.yaml", text)


# ── Places ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_environment_says_where_the_home_and_the_database_are(tmp_path: Path) -> None:
    home = Home.from_environment({"TREADLE_HOME": str(tmp_path)})
    assert home.path == tmp_path
    assert home.database_url == f"sqlite:///{tmp_path}/treadle.db"
    assert Home.from_environment({"TREADLE_DATABASE_URL": "sqlite:///x.db"}).database_url == "sqlite:///x.db"


def test_the_default_home_is_in_the_home_of_the_user() -> None:
    assert Home.from_environment({"TREADLE_HOME": ""}).path == Path.home() / ".treadle"


def test_a_home_is_created_on_demand_and_private(home: Home) -> None:
    home.config()
    home.agents()
    assert not home.path.exists()
    home.ensure()
    home.ensure()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700


def test_a_home_that_cannot_be_created_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/home cannot be created: Not a directory\. .* TREADLE_HOME"):
        Home(tmp_path / "file" / "home").ensure()


# ── config.yaml ────────────────────────────────────────────────────────────────────────────────────


def test_the_configuration_names_providers_and_defaults(home: Home) -> None:
    write(
        home,
        "config.yaml",
        """
        providers:
          mine: {base_url: "http://127.0.0.1:1/v1", api_key_env: MINE_KEY, headers: {X-Team: blue}}
        defaults: {provider: mine, model: small}
        """,
    )
    config = home.config()
    assert config.providers["mine"].headers == {"X-Team": "blue"}
    assert (config.defaults.provider, config.defaults.model) == ("mine", "small")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("providers: {p: {base_url: nowhere}}", "providers.p.base_url must be an http or https URL such as"),
        ("providers: {p: {}}", "providers.p.base_url is missing; accepted: text"),
        ("providers: {p: {base_url: http://x, api_key: 12345}}", "providers.p.api_key: found a number; accepted"),
        ("providers: {p: {base_url: http://x, headers: {A: 1}}}", "providers.p.headers.A: found a number; acc"),
        (
            "providers: {p: {base_url: http://x, timeouts: {first_byte: 0}}}",
            "providers.p.timeouts.first_byte must be above 0",
        ),
        ("providers: {a/b: {base_url: http://x}}", "providers: the name `a/b` must not be empty and must not"),
        ("defaults: {history_messages: 0}", "defaults.history_messages must be 1 or more, found 0"),
        ("defaults: {modle: x}", "defaults.modle is not a known key; did you mean `model`?"),
        ("server: {port: 70000}", "server.port must be from 0 to 65535, found 70000"),
    ],
)
def test_an_invalid_configuration_is_reported_in_one_line_without_secrets(home: Home, text: str, line: str) -> None:
    path = write(home, "config.yaml", text)
    with pytest.raises(ConfigError) as caught:
        home.config()
    assert str(caught.value).startswith(f"{path}: {line}")
    assert "\n" not in str(caught.value)
    assert "12345" not in str(caught.value)


# ── Agents ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_file_can_set_every_field(home: Home) -> None:
    agent_file(
        home,
        """
        name: a
        provider: p
        model: m
        model_settings: {max_tokens: null, temperature: 0.5, reasoning: low}
        persona: |
          You are brief.
        tools: [add, "file_*"]
        output: {type: object, properties: {when: {const: 2024-01-01}}}
        limits: {max_steps: null, max_continuations: 0, deadline: 10m, stuck_steps: 3, cost: null}
        budget_hints: true
        retry: {attempts: 0, base_ms: 10, schedule: linear}
        loop: {doom_loop: strict, final_marker: DONE}
        fallbacks: []
        quotas: {max_llm_tokens_per_hour: null, credits: null}
        heartbeat: {every: null, message: null}
        concurrency: 2
        """,
    )
    spec = home.agent("a")
    assert spec.limits == Limits(max_steps=None, max_continuations=0, deadline="10m", stuck_steps=3)
    assert spec.persona == "You are brief.\n"
    assert spec.concurrency == 2
    assert spec.output == {"type": "object", "properties": {"when": {"const": "2024-01-01"}}}
    assert home.agents() == ["a"]


ACCEPTED = (
    "name, model, provider, model_settings, persona, fallbacks, routing, tools, client_tools, agents, skills, "
    "output, limits, budget, budget_hints, retry, loop"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "name is missing; accepted: text"),
        ("model: x", "name is missing; accepted: text"),
        ("just words", "found the text `just words`; accepted: a mapping with the keys name, model"),
        ("name: a\nmodel: [x", "line 2, column 10: it is not valid YAML: expected ',' or ']', but got"),
        ("name: a\n\tmodel: x", "line 2, column 1: it is not valid YAML: found character '\\t' that cannot"),
        ("name: a\nmodel: !!python/object:os.system x", "line 2, column 8: it is not valid YAML: could not deter"),
        ("name: a\nmodel: x\nname: b", "line 3: the key `name` is there twice; remove one"),
        ("name: a\nmodel: x\n1: 1", "line 3: the key `1` is not text; put it in quotes"),
        ("name: a\nmodel: x\n? [k]\n: 1", "line 3: the key `…` is not text; put it in quotes"),
        (b"name: \xff\xfe", "byte 7 is not UTF-8; save the file as UTF-8"),
        (b"name: a\x00", "it is not valid YAML: special characters are not allowed (character 8)"),
        (b"x" * 1_000_001, "it is larger than 1 MB; shorten it"),
        ("[" * 500, "it is not valid YAML: maximum recursion depth exceeded"),
        (
            "name: a\nmodel: x\noutput: &o {self: *o}",
            "line 3: anchors and aliases (`&o`) are not accepted; write the value out",
        ),
        (
            "{name: a, model: x, persoan: hi}",
            f"persoan is not a known key; did you mean `persona`? acc: {ACCEPTED}",
        ),
        ("{name: a, model: x, xyz: hi}", f"xyz is not a known key; accepted: {ACCEPTED}"),
        ("{name: a, model: null}", "model: found null; accepted: text"),
        ("{name: a b, model: x}", "name `a b` must be 1 to 64 letters"),
        ("{name: b, model: x}", "name: found `b`; accepted: `a`, as its folder is called"),
        ("{name: a, model: x, tools: bash}", "tools: found the text `bash`; accepted: a list of text"),
        ("{name: a, model: x, tools: [t, 1]}", "tools[1]: found the number 1; accepted: text"),
        ("{name: a, model: x, budget_hints: 'on'}", "budget_hints: found the text `on`; accepted: true or false"),
        (
            "{name: a, model: x, limits: 3}",
            "limits: found the number 3; accepted: a mapping with the keys max_steps",
        ),
        (
            "{name: a, model: x, limits: {max_steps: fifty}}",
            "limits.max_steps: found the text `fifty`; accepted: a whole number or null",
        ),
        ("{name: a, model: x, limits: {max_steps: yes}}", "limits.max_steps: found the text `yes`; accepted: a"),
        ("{name: a, model: x, limits: {max_steps: 0}}", "limits.max_steps must be above 0, found 0"),
        ("{name: a, model: x, limits: {deadline: 10x}}", "limits.deadline: `10x` is not a duration; write a"),
        ("{name: a, model: x, limits: {deadline: .nan}}", "limits.deadline: found nan; accepted: a finite number"),
        (
            "{name: a, model: x, limits: {max_step: 1}}",
            "limits.max_step is not a known key; did you mean `max_steps`",
        ),
        (
            "{name: a, model: x, retry: {schedule: random}}",
            "retry.schedule: found the text `random`; accepted: exponential or linear",
        ),
        (
            "{name: a, model: x, retry: {attempts: -1}}",
            "retry.attempts and base_ms must be 0 or more; found the number -1",
        ),
        (
            "{name: a, model: x, output: {type: thing}}",
            'output: it is not a JSON Schema: at `type`: "thing" is not valid',
        ),
        (
            "{name: a, model: x, output: {$ref: 'http://x/y'}}",
            "output: it is not a JSON Schema: Resource 'http://x/y",
        ),
        ("{name: a, model: x, budget: mine}", "budget: found the text `mine`; accepted: own or shared"),
        ("{name: a, model: x, quality: {minimum: 5}}", "quality.minimum must be from 0 to 1, found 5"),
        ("{name: a, model: x, limits: {max_children: 0}}", "limits.max_children must be above 0, found 0"),
        ("{name: a, model: x, memory: {recall: 99}}", "memory.recall must be from 0 to 50, found 99"),
        ("{name: a, model: x, memory: {embedder: best}}", "memory.embedder must be auto, none, local or provider/"),
        ("{name: a, model: x, compaction: {at: 75}}", "compaction.at must be above 0 and at most 1, found 75"),
        ("{name: a, model: x, limits: {history_messages: 0}}", "limits.history_messages must be above 0, found 0"),
        ("{name: a, model: x, fallbacks: y}", "fallbacks: found the text `y`; accepted: a list of text"),
        ("{name: a, model: x, routing: {tiers: [{upto: 1}]}}", "routing.tiers[0].model is missing"),
        (
            "{name: a, model: x, limits: {max_depth: -2}}",
            "limits.max_depth and max_tree must be 0 or more; found the number -2",
        ),
    ],
)
def test_an_invalid_agent_file_is_reported_in_one_line(home: Home, text: str | bytes, line: str) -> None:
    path = agent_file(home, text)
    before = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        home.agent("a")
    assert str(caught.value).startswith(f"{path}: {line.replace('acc: ', 'accepted: ')}")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_folder_in_place_of_a_file_is_reported_in_one_line(home: Home) -> None:
    (home.path / "agents" / "a" / "config.yaml").mkdir(parents=True)
    with pytest.raises(ConfigError, match="it is a folder, not a file; move it away"):
        home.agent("a")


def test_an_unknown_agent_is_reported_with_the_nearest_name(home: Home) -> None:
    agent_file(home, "{name: writer, model: x}", "writer")
    with pytest.raises(UsageError, match="No agent is called `writter`; did you mean `writer`"):
        home.agent("writter")


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "/etc", "a/../a", "a/", "a\x00b"])
def test_no_agent_name_leads_out_of_the_agents_folder(home: Home, name: str) -> None:
    agent_file(home, "{name: a, model: x}")
    write(home, "config.yaml", "{}")
    with pytest.raises(UsageError, match="No agent is called"):
        home.agent(name)


# ── The default agent ──────────────────────────────────────────────────────────────────────────────


def test_the_default_agent_is_made_on_first_use_with_the_default_model(home: Home) -> None:
    write(home, "config.yaml", "defaults: {provider: p, model: 'm: #1'}")
    made = home.agent("default")
    assert (made.model, made.provider) == ("m: #1", "p")
    assert home.agent("default") == made, "the file says what was made"
    folder = home.path / "agents" / "default"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [file.name for file in folder.iterdir()] == ["config.yaml"]
    write(home, "config.yaml", "defaults: {model: other}")
    assert home.agent("default").model == "other", "it follows the default model"


def test_without_a_default_model_no_default_agent_is_made(home: Home) -> None:
    with pytest.raises(UsageError, match=r"No model is set\. Name one for this run with -m"):
        home.agent("default")
    assert home.agent("default", model="p/m").model == "p/m"
    assert not home.path.exists()


def test_the_default_agent_reads_freely_and_asks_before_other_calls(home: Home) -> None:
    agent = home.agent("default", model="p/m")
    looks = {rule.tool: rule.do for rule in agent.approvals.rules if rule.match is None}
    assert looks == dict.fromkeys((*DEFAULT_PERMITTED_TOOLS, "load_skill"), "auto")
    assert [rule for rule in agent.approvals.rules if rule.match is not None] == []
    assert agent.approvals.default == "ask"
    assert set(agent.tools) == {*DEFAULT_PERMITTED_TOOLS, *DEFAULT_APPROVAL_TOOLS}


def test_a_permanent_approval_applies_from_then_on(home: Home) -> None:
    write(home, "agents/a/config.yaml", "{name: a, model: x, approvals: {default: ask}}  # mine")
    path = home.allow("a", "bash", "git status *", "/work")
    home.allow("a", "bash", "git status *", "/work")
    home.allow("a", "write_file", "*", "/work")
    assert [(rule.tool, rule.match, rule.do) for rule in home.agent("a").approvals.rules] == [
        ("bash", "git status *", "auto"),
        ("write_file", "*", "auto"),
    ]
    assert "# mine" in (home.path / "agents/a/config.yaml").read_text(), "the file of a person is left alone"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_pipe_in_place_of_a_file_does_not_stop_the_process(home: Home) -> None:
    home.ensure()
    os.mkfifo(home.config_file)
    with pytest.raises(ConfigError, match="it is a pipe, not a file; move it away"):
        home.config()


@pytest.mark.parametrize("left", ["a", "é", "'", "# ", ": ", "[", "*", "{{", "- ", "\\", "x" * 4000])
@pytest.mark.parametrize(
    "right", ["b", "\x85b", "\u2028b", "\u2029", "\ufeff", "\x1b[0m", "\x85", " ", "\t#", '"', "\n"]
)
def test_a_saved_permission_is_read_back_exactly(home: Home, left: str, right: str) -> None:
    """A rule for one line must not become one for another line."""
    agent_file(home, "name: a\nmodel: m/m\n")
    pattern = f"exactly: cat {left}{right}"
    home.allow("a", "bash", pattern, "/work")
    assert home.agent("a").approvals.rules[-1].match == pattern


@pytest.mark.parametrize("word", ["off", "auto", "required"])
def test_yes_and_no_are_text_in_yaml(home: Home, word: str) -> None:
    write(home, "agents/a/config.yaml", f"{{name: a, model: x, sandbox: {word}}}")
    assert home.agent("a").confinement.mode == word


def test_an_agent_can_configure_its_sandbox(home: Home) -> None:
    write(home, "agents/a/config.yaml", "{name: a, model: x, sandbox: {mode: required, network: true}}")
    assert home.agent("a").confinement == SandboxPolicy("required", network=True)


def test_the_workspace_is_in_the_home_by_default(home: Home, tmp_path: Path) -> None:
    own = home.workspace(AgentSpec("a", "x"))
    assert own == home.path / "workspaces" / "a"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert home.workspace(AgentSpec("a", "x", workspace=str(tmp_path))) == tmp_path
    with pytest.raises(UsageError, match="is not a folder"):
        home.workspace(AgentSpec("a", "x", workspace=str(tmp_path / "nowhere")))


def test_the_default_history_limit_applies_to_agents_without_their_own(home: Home) -> None:
    write(home, "config.yaml", "defaults: {model: p/m, history_messages: 40}")
    write(home, "agents/plain/config.yaml", "name: plain")
    write(home, "agents/own/config.yaml", "name: own\nlimits: {history_messages: 7, max_steps: 3}")
    limits = {name: home.agent(name).limits for name in ("plain", "own", "default")}
    assert {name: each.history_messages for name, each in limits.items()} == {"plain": 40, "own": 7, "default": 40}
    assert (limits["plain"].max_steps, limits["own"].max_steps) == (50, 3)
    assert home.agent("default").limits.history_messages == 40
    assert "history_messages" not in (home.path / "agents/default/config.yaml").read_text()


def test_codex_responses_is_another_name_of_responses(home: Home) -> None:
    write(home, "config.yaml", "providers: {mine: {base_url: 'https://m.example/v1', api_mode: codex_responses}}")
    assert home.config().providers["mine"].mode == "responses"
