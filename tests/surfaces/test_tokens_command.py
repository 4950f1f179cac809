"""`treadle tokens` and `treadle serve`: access tokens and addresses."""

import json
from urllib.request import Request, urlopen

import pytest

from tests.surfaces.http.process import Serving
from tests.surfaces.shell import Shell


async def test_tokens_are_made_listed_and_revoked(shell: Shell) -> None:
    shell.configure()
    assert "No access tokens yet" in (await shell("tokens", "list")).err
    made = await shell("tokens", "create", "ci", "--scope", "read", "--scope", "run", "-a", "default")
    assert made.out.startswith("trd_")
    assert made.out.count("\n") == 1
    assert "shown only once" in made.err
    full = ["--expires", "90d", "--tokens-per-hour", "1000", "--tool-calls-per-minute", "5", "--credits", "2.5"]
    other = (await shell("tokens", "create", "all", "--scope", "admin", "--json", *full)).json[0]
    assert other["quotas"] == {
        "max_llm_tokens_per_hour": 1000,
        "max_tool_calls_per_minute": 5,
        "credits": 2.5,
    }
    listed = await shell("tokens", "list", "--json")
    assert [(each["name"], each["scopes"], each["agents"]) for each in listed.json] == [
        ("ci", ["read", "run"], ["default"]),
        ("all", ["admin"], None),
    ]
    for text in (listed.out, (await shell("tokens", "list")).out):
        assert made.out.strip() not in text
        assert other["token"] not in text
    assert (await shell("tokens", "revoke", other["token_id"])).code == 0
    assert "revoked" in (await shell("tokens", "list")).out
    assert "no token" in (await shell("tokens", "revoke", "all")).complaint  # by its name: it is gone
    assert "the token itself" in (await shell("tokens", "revoke", made.out.strip())).complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["create", " "], "needs a name"),
        (["create", "x", "--expires", "soon"], "--expires is `soon`"),
        (["create", "x", "--expires", "0s"], "expiry of the token is in the past"),
        (["create", "x", "--agent", "nobody"], "No agent is called `nobody`"),
        (["create", "x", "--agent", "default", "--scope", "admin"], "for all agents"),
        (["create", "x", "--tokens-per-hour", "0"], "must be above 0"),
        (["revoke", "tok_x"], "no token `tok_x`"),
    ],
)
async def test_invalid_requests_are_refused(shell: Shell, arguments: list[str], complaint: str) -> None:
    shell.configure()
    done = await shell("tokens", *arguments)
    assert done.code == 2
    assert complaint in done.complaint
    assert (await shell("tokens", "list", "--json")).json == []


def test_the_first_start_shows_a_token_that_works(shell: Shell) -> None:
    serving = Serving(shell.configure())
    serving.start()
    request = Request(f"{serving.url}/v1/agents", headers={"Authorization": f"Bearer {serving.token}"})
    with urlopen(request) as response:
        assert [each["agent"]["name"] for each in json.load(response)["items"]] == ["default"]
    assert serving.token not in serving.stop()
    first, serving.token = serving.token, ""
    serving.start()
    assert serving.token == ""  # shown once
    with urlopen(Request(request.full_url, headers={"Authorization": f"Bearer {first}"})) as response:
        assert response.status == 200
    serving.stop()


async def test_serving_beyond_loopback_requires_a_token(shell: Shell) -> None:
    shell.configure()
    refused = await shell("serve", "--host", "0.0.0.0", "--port", "0")
    assert "Create one first: treadle tokens create" in refused.complaint
    assert refused.code == 2
    assert (await shell("tokens", "create", "gone")).code == 0
    assert (await shell("tokens", "revoke", "gone")).code == 0
    assert "no valid access token" in (await shell("serve", "--host", "0.0.0.0")).complaint


async def test_a_port_in_use_is_reported(shell: Shell) -> None:
    serving = Serving(shell.configure())
    serving.start()
    other = Shell(shell.home.parent / "other").configure()
    taken = await other("serve", "--port", str(serving.port))
    assert "Choose another with --port" in taken.complaint
    serving.stop()
