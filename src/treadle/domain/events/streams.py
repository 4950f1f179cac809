"""Events about a stream, for its readers."""

from treadle.domain.events.definitions import EventData, live


@live("stream_reset", stream="system")
class StreamReset(EventData, frozen=True):
    """The reader fell behind and was disconnected. Subscribe again after `after`; nothing is lost."""

    after: int
    reason: str
