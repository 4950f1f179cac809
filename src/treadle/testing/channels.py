"""Conformance checks for adapters of chat platforms. An adapter that passes them can be used as a channel."""

from collections.abc import Awaitable, Callable, Sequence

from treadle.channels.parts import split_for_channel
from treadle.ports.channel import Channel, ChannelRefused, Outgoing, OutgoingFile, UploadChannel

HOSTILE = (
    "<b>not bold</b> & *unclosed _markup [link](javascript:alert(1)) `code",
    "```\nno end of the block",
    "| a | b |\n|---|---|\n| <i> | & |",
    "# Heading\n\n- one\n  - two\n\n> quote\n\n1. first",
    "[x]: http://example.org",
    "[](http://example.org)",
    "#",
    "\u202eright to left \U0001f600 e\u0301",
)
"""Markdown that a model may write and that no platform may reject."""


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001"
    "e221bc330000000049454e44ae426082"
)
"""A picture of one pixel."""


async def check_channel(
    channel: Channel, conversation: str, unknown: str, texts: Callable[[], Awaitable[Sequence[str]]]
) -> None:
    """Check a channel that is connected to a test platform. `texts` returns the messages that people see in the
    conversation, and `unknown` is a conversation that does not exist.

    Raise AssertionError with what is wrong."""
    traits = channel.traits
    assert traits.max_characters >= 500, "answers would be cut into too many parts"
    assert (await channel.check()).strip(), "`check` returns the name of the account"

    first = await channel.send(Outgoing("check/1", conversation, "one"))
    second = await channel.send(Outgoing("check/2", conversation, "two"))
    assert first, "a message has an ID"
    assert first != second, "each message has an ID of its own"
    found = await texts()
    assert [text.strip() for text in found[-2:]] == ["one", "two"], f"messages keep their order: {found}"
    if traits.deduplicates:
        again = await channel.send(Outgoing("check/2", conversation, "two"))
        assert again == second, "a message that is sent again has the same ID"
    if traits.can_edit:
        await channel.edit(second, Outgoing("check/2", conversation, "changed"))
        await channel.edit(second, Outgoing("check/2", conversation, "changed"))
        assert "changed" in (await texts())[-1], "an edit replaces the text, also when it is repeated"
    for number, text in enumerate(HOSTILE):
        assert await channel.send(Outgoing(f"check/hostile/{number}", conversation, text)), text
    longest = "word " * (traits.max_characters // 5)
    assert await channel.send(Outgoing("check/long", conversation, longest)), "the longest text is accepted"
    wide = f"| name | about |\n|---|---|\n| wide | {'word ' * 12} |\n"
    rows = ["|a|b|"] * (traits.max_characters // 6)
    for number, text in enumerate(split_for_channel(channel, wide + "\n".join(rows))):
        assert await channel.send(Outgoing(f"check/table/{number}", conversation, text)), "a table is accepted"
    file = OutgoingFile("chart.png", "image/png", PNG)
    text = "with a file" if traits.combines_files else ""
    assert await channel.send(Outgoing("check/file", conversation, text, files=(file,))), "a file is sent"
    if isinstance(channel, UploadChannel):
        await _check_upload(channel, Outgoing("check/upload", conversation, "", files=(file,)))
    await channel.show_typing(conversation)
    try:
        await channel.send(Outgoing("check/unknown", unknown, "lost"))
    except ChannelRefused:
        return
    raise AssertionError("a conversation that does not exist raises ChannelRefused")


async def _check_upload(channel: UploadChannel, message: Outgoing) -> None:
    file_id = await channel.upload(message)
    assert not await channel.is_shared(file_id), "a file that was only uploaded is not shared"
    await channel.share(file_id, message)
    assert await channel.is_shared(file_id), "a file that was shared is found"
