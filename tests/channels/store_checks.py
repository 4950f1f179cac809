"""What both databases must do for channels."""

import msgspec

from treadle.domain.channels import PairingCode, Person
from treadle.domain.ids import RunId, SessionId
from treadle.ports.channel import Incoming, Outgoing
from treadle.ports.channel_store import ChannelConversation, ChannelState, ChannelStore

RUN = RunId("run_1")


async def check_store(store: ChannelStore) -> None:
    anna = Person(channel="t", sender="11", name="Anna\0", user="anna", grants=("direct", "approve"), added_at=1.5)
    await store.save_person(anna)
    await store.save_person(anna)
    assert (await store.person("t", "11"), await store.people("other"), await store.people()) == (anna, [], [anna])
    code = PairingCode(code="ABCDEFGH", channel="t", sender="12", name="Ben", conversation="12", expires_at=10.0)
    await store.add_code(code)
    assert await store.codes(9.0) == [code]
    assert await store.codes(10.0) == []
    place = ChannelConversation("t", "11", SessionId("ses_1"), "anna", True)
    await store.save_conversation(place)
    assert await store.conversation("t", "11") == place
    assert await store.conversation("t", "12") is None

    messages = [Incoming(f"m{number}", "11", "11", text=f"\ud800 {number}\0") for number in range(3)]
    assert len(await store.receive("t", messages[:2], "c1", 1.0)) == 2
    assert [each.message_id for each in await store.receive("t", messages, None, 1.0)] == ["m2"]
    assert await store.cursor("t") == "c1"
    assert [item.message.message_id for item in await store.inbox("t", "11")] == ["m0", "m1", "m2"]
    await store.start("t", "m0", RUN)
    await store.start("t", "m0", RunId("run_2"))
    first = await store.find_received("t", "m0")
    assert first is not None
    assert (first.state, first.run_id) == ("running", RUN), "the first run stays"
    assert not await store.replace_received("t", messages[0])
    assert await store.replace_received("t", Incoming("m1", "11", "11", text="edited"))

    draft = await store.draft("t", Outgoing("k", "11", "par"), RUN, 2.0)
    await store.finish("t", [Outgoing("k", "11", "whole"), Outgoing("k2", "11", "more")], 3.0, run_id=RUN)
    await store.settle(draft, "t")  # a draft that was sent meanwhile does not undo the end
    ready = await store.outbox("t")
    assert [item.message.text for item in ready] == ["whole", "more"]
    await store.finish("t", [Outgoing("k", "11", "again")], 3.0, run_id=RUN)
    assert [item.message.text for item in await store.outbox("t")] == ["whole", "more"], "once for each key"
    assert [item.message.message_id for item in await store.inbox("t")] == ["m1", "m2"]


async def check_states(store: ChannelStore) -> None:
    for number, place in enumerate(("c", "a", "b", "a")):
        await store.receive("s", [Incoming(f"m{number}", place, "11")], None, 1.0)
    assert await store.conversations("s", None, 2) == ["a", "b"], "the latest ones"
    assert await store.conversations("s", "", 2) == ["a", "b"]
    assert await store.conversations("s", "b", 2) == ["c"]
    state = ChannelState(
        channel="s", status="failed", account="@bot", reason="no network", since=1.5, retry_at=9.5, recorded_at=2.5
    )
    await store.save_state(msgspec.structs.replace(state, status="connected"))
    await store.save_state(state)
    [found] = await store.states()
    assert msgspec.structs.replace(found, is_held=None) == state
    assert not found.is_held


async def check_settled(store: ChannelStore) -> None:
    from msgspec.structs import replace

    [item, other] = await store.outbox("t")
    await store.settle(replace(item, state="sent", message_id="99", attempts=1), "t")
    sent = await store.find_sent("t", message_id="99", conversation="11")
    assert sent is not None
    assert (sent.key, sent.message.text) == ("k", ""), "the text is not kept"
    assert await store.find_sent("t", message_id="99", conversation="12") is None
    assert [each.key for each in await store.outbox("t")] == [other.key]
    assert dict(await store.counts("t")) == {"new": 2, "ready": 1}
    part = await store.draft("t", Outgoing("k/file/0", "11", ""), None, 4.0)
    await store.settle(replace(part, message_id="F1"), "t")
    await store.finish("t", (), 5.0, run_id=RUN)
    part = await store.draft("t", Outgoing("k/file/0", "11", ""), None, 6.0)
    assert (part.state, part.message_id) == ("draft", "F1"), "the end of a run closes the drafts of the run only"
    bare = ChannelConversation("t", "bare", SessionId("ses_none"), "anna", True)
    await store.save_conversation(bare)
    await store.forget_before(100.0, 10.0)
    assert await store.conversation("t", "bare") is None, "no run, no message"
    assert await store.conversation("t", "11") is not None, "messages of it are stored"
    assert await store.codes(0.0) == [], "expired codes are removed"
    assert await store.find_sent("t", key="k") is None
    assert await store.find_sent("t", key="k/file/0") is None
    assert await store.remove_person("t", "11")
    assert not await store.remove_person("t", "11")
