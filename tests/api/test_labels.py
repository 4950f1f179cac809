"""Tags and metadata of runs, and the user: set once, inherited, shown and filtered in the same way everywhere."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from tests.api.programs import make_engine
from tests.surfaces.http.served_home import ServedHome, serve_home
from treadle.domain.errors import ConfigError, UnknownRun, UsageError
from treadle.domain.labels import MAX_TAGS, MAX_VALUE_CHARACTERS
from treadle.operations import runs, usage_report
from treadle.ports.access import CreateToken
from treadle.testing import ask, call, say

WRITER = treadle.Agent("writer", model="scripted/any")
EDITOR = treadle.Agent("editor", model="scripted/any", tools=[WRITER])
HELPER = treadle.Agent("helper", model="scripted/any")


async def test_child_runs_and_forks_have_the_labels_of_their_run(tmp_path: Path) -> None:
    script = (
        ask(call("invoke_agent", agent="writer", message="Write.")),
        say("Text."),
        say("Done."),
        say("Again."),
    )
    async with make_engine(tmp_path, *script) as engine:
        result = await engine.run(EDITOR, "Edit.", tags=["vip", "eu", "vip"], metadata={"ticket": "42"})
        fork = await engine.wait(await engine.fork(result.run_id))
        found = await engine.list_runs(tag=["vip", "eu"], metadata={"ticket": "42"})
        assert [(run.agent, run.tags, run.metadata) for run in found] == [
            (name, ("vip", "eu"), {"ticket": "42"}) for name in ("editor", "writer", "editor")
        ]
        assert found[0].run_id == fork.run_id
        assert await engine.list_runs(tag="us") == []


async def test_all_runs_of_an_agent_have_its_tags(tmp_path: Path) -> None:
    """Before their own, each once. A child run has those of its parent, too."""
    script = ask(call("invoke_agent", agent="scribe", message="Write.")), say("Text."), say("Done."), say("Again.")
    scribe = treadle.Agent("scribe", model="scripted/any", tags=["text", "eu"])
    editor = treadle.Agent("chief", model="scripted/any", tools=[scribe], tags=["desk"])
    async with make_engine(tmp_path, *script) as engine:
        result = await engine.run(editor, "Edit.", tags=["eu", "desk"])
        await engine.wait(await engine.fork(result.run_id, agent=scribe))
        found = {(run.agent, run.tags) for run in await engine.list_runs()}
        with pytest.raises(UsageError, match="there are 17 tags; at most 16"):
            await engine.submit(editor, "Edit.", tags=[str(number) for number in range(MAX_TAGS)])
    desk = ("desk", "eu")
    assert found == {("chief", desk), ("scribe", (*desk, "text"))}
    with pytest.raises(ConfigError, match="the tag 'two words' is not made of"):
        treadle.Agent("x", model="scripted/any", tags=["two words"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tags": ["two words"]}, r"the tag 'two words' is not made of 1 to 64 of the characters"),
        ({"tags": ["x" * 65]}, "is not made of 1 to 64"),
        ({"tags": ["-x"]}, "first a letter or a digit"),
        ({"tags": [str(number) for number in range(MAX_TAGS + 1)]}, "there are 17 tags; at most 16"),
        ({"metadata": {"a b": "x"}}, "the metadata name 'a b'"),
        ({"metadata": {"a": "x" * (MAX_VALUE_CHARACTERS + 1)}}, "has 513 characters; at most 512"),
        ({"metadata": {"a": "two\nlines"}}, "it is one line of text"),
        ({"metadata": {"key": "the secret is s3cret-value-of-vault"}}, "contain the secret `KEY`"),
    ],
)
async def test_labels_that_cannot_be_stored_are_refused(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    async with serve_home(tmp_path) as web, treadle.AsyncClient(web.url, token=web.token) as client:
        await put_secret(web)
        agent = web.engine.context.agents.find("one")
        for start in (web.engine.submit(agent, "Hello.", **options), client.submit("one", "Hello.", **options)):
            with pytest.raises(UsageError, match=told):
                await start
        assert await web.engine.list_runs() == []


async def put_secret(web: ServedHome) -> None:
    reply = await web.ask("PUT", "/v1/vault/KEY", {"value": "s3cret-value-of-vault"})
    assert reply.status < 300, reply


async def test_labels_of_other_types_are_mistakes_of_the_program(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"tags": "vip"}, r"Write tags=\['vip'\]"),
        ({"tags": [1]}, "A tag is text, not int"),
        ({"metadata": {"ticket": 42}}, "The metadata `ticket` is text, not int. Write '42'"),
        ({"metadata": ["a"]}, "is not a dictionary"),
    ]
    async with make_engine(tmp_path, say("Hi.")) as engine:
        for options, told in wrong:
            with pytest.raises(TypeError, match=told):
                await engine.submit(HELPER, "Hello.", **options)


async def test_engine_and_client_filter_alike(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web, treadle.AsyncClient(web.url, token=web.token) as client:
        one = await client.run("one", "A", tags=["vip", "a/b:c"], metadata={"ticket": "4=2 & é"}, user="alice")
        two = await client.run("two", "B", tags=["vip"], user="bob")
        await client.run("two", "C")
        agent = web.engine.context.agents.find("one")
        here = await web.engine.run(agent, "D", tags=["vip"], user="alice")
        for reader in (client, web.engine):

            async def found(reader: Any = reader, **wanted: Any) -> list[str]:
                return [run.run_id for run in await reader.list_runs(**wanted)]

            assert await found(tag="vip") == [here.run_id, two.run_id, one.run_id]
            assert await found(tag=["vip", "a/b:c"]) == [one.run_id]
            assert await found(metadata={"ticket": "4=2 & é"}) == [one.run_id]
            assert await found(tag="vip", agent="two", status="completed") == [two.run_id]
            shown = await reader.show(one.run_id)
            assert (shown.tags, shown.metadata) == (("vip", "a/b:c"), {"ticket": "4=2 & é"})
            with pytest.raises(UsageError, match="The filter cannot match a run: the tag 'a b'"):
                await reader.list_runs(tag="a b")
        owner = (await client.show(one.run_id)).owner
        assert [run.run_id for run in await client.list_runs(user=owner)] == [one.run_id]
        assert [run.run_id for run in await client.list_runs(user="alice")] == [here.run_id, one.run_id]
        lines = {line.key: line.runs for line in await client.usage(by="tag")}
        assert lines == {"": 1, "a/b:c": 1, "vip": 3}
        assert {line.key: line.runs for line in await client.usage(by="user", tag="vip")}[owner] == 1
        assert [line.runs for line in await client.usage(by="agent", user="alice")] == [2]
        assert await client.usage(by="tag") == await web.engine.usage(by="tag")


async def test_a_filter_that_is_written_wrongly_is_refused(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        for query, told in (("metadata=ticket", "NAME=VALUE"), ("metadata=a=1&metadata=a=2", "two values")):
            reply = await web.ask("GET", f"/v1/runs?{query}")
            assert (reply.status, told in str(reply.json)) == (400, True), reply


async def test_who_may_not_see_a_run_learns_nothing_about_its_labels(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        own, other = await web.mint(visibility="own"), await web.mint(visibility="own")
        limited = await web.mint("read", agents=("two",))
        async with treadle.AsyncClient(web.url, token=own) as client:
            run = await client.run("one", "A", tags=["vip"], metadata={"ticket": "42"})
            assert [each.run_id for each in await client.list_runs(tag="vip")] == [run.run_id]
            assert [line.key for line in await client.usage(by="tag")] == ["vip"]
            user = (await client.show(run.run_id)).owner
        for token in (other, limited):
            async with treadle.AsyncClient(web.url, token=token) as client:
                assert await client.list_runs(tag="vip") == []
                assert await client.list_runs(metadata={"ticket": "42"}) == []
                assert await client.list_runs(user=user) == []
                assert not await client.usage(by="tag")
                assert not await client.usage(tag="vip")
                with pytest.raises(UnknownRun):
                    await client.show(run.run_id)


async def test_a_user_whom_a_client_serves_sees_only_their_own_usage(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as web:
        wanted = CreateToken("app", ("read", "run"), visibility="all", multi_user=True)
        token = (await web.engine.context.access.create(wanted)).secret
        async with treadle.AsyncClient(web.url, token=token) as client:
            await client.run("one", "A", tags=["of-alice"], user="alice")
            await client.run("one", "B", tags=["of-bob"], user="bob")
        for name in ("alice", "bob"):
            headers = {"x_treadle_user": name}
            seen = await web.ask("GET", "/v1/usage?by=tag", None, token, **headers)
            assert [line["key"] for line in seen.json["items"]] == [f"of-{name}"]
            listed = await web.ask("GET", f"/v1/runs?user={name}", None, token, **headers)
            assert [run["tags"] for run in listed.json["items"]] == [[f"of-{name}"]]


def test_usage_and_lists_share_the_definition_of_a_filter() -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(runs.ListRuns)}
    for request in (usage_report.ShowUsage, usage_report.ShowSeries):
        shared = {field.name: field.type for field in msgspec.structs.fields(request)}
        assert (shared["tag"], shared["user"]) == (fields["tag"], fields["user"])
